-- Extends the leases in ARGV[3], 32 bytes each: seq, id, fence. ARGV[4] is the span; it becomes that of the lease if
-- ARGV[5] is 1. Returns for each 0: lost, 1: extended, 2: extended, and to be cancelled.
local text, span, ids, answers = ARGV[3], tonumber(ARGV[4]), {}, {}
for i = 1, #text / 32 do ids[i] = sub(text, i * 32 - 23, i * 32 - 8) end
local found, packed, expiry = records(ids), pack('>I8', span), int(now + span)
local words = {'ZADD', P .. 'leases', 'XX', 'GT'}
for i, id in ipairs(ids) do
  local record = found[i]
  if record and byte(record, 1) == RUNNING and sub(record, 49, 56) == sub(text, i * 32 - 7, i * 32) then
    words[#words + 1] = expiry
    words[#words + 1] = sub(text, i * 32 - 31, i * 32 - 8)
    if ARGV[5] == '1' and sub(record, 65, 72) ~= packed then
      put('HSET', 'j' .. sub(id, 1, 4), id, sub(record, 1, 64) .. packed .. sub(record, 73))
    end
    answers[i] = band(byte(record, 2), ASKED) > 0 and '2' or '1'
  else
    answers[i] = '0'
  end
end
if #words > 4 then call(unpack(words)) end
flush()
return table.concat(answers)
