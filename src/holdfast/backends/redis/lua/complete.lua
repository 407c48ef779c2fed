-- Completes the jobs that are held under the leases in ARGV[3]: 32 bytes each, seq, id and fence. From ARGV[4] on pairs:
-- the number of a lease, and its result, packed. Returns 1 for each that is done, and how many of them are parents.
local text, results, ids, verdicts = ARGV[3], {}, {}, {}
for i = 4, #ARGV, 2 do results[tonumber(ARGV[i])] = ARGV[i + 1] end
for i = 1, #text / 32 do ids[i] = sub(text, i * 32 - 23, i * 32 - 8) end
local found, finished, score, lines, ended, done, size = records(ids), pack('>I8', now), int(now), {}, {}, {}, 0
for i, id in ipairs(ids) do
  local record = found[i]
  local is_held = record and byte(record, 1) == RUNNING and sub(record, 49, 56) == sub(text, i * 32 - 7, i * 32)
  if is_held and not done[id] then
    local flags, lane, member = byte(record, 2), int(at('>I4', record, 29)), sub(text, i * 32 - 31, i * 32 - 8)
    local order_key, position = '', 77
    if band(flags, KEYED) > 0 then
      position = 79 + at('>I2', record, 77)
      order_key = sub(record, 77, position - 1)
      local line = line_of(lane, sub(order_key, 3))
      put('ZREM', 'o' .. line, member)
      lines[line] = true
    end
    if band(flags, EXTRA) > 0 then position = position + 4 + at('>I4', record, position) end
    if band(flags, ASKED) > 0 then put('ZREM', 'asked', member) end
    if band(flags, FOLLOWED) > 0 then ended[#ended + 1] = member end
    flags = band(flags, KEYED + APART) + LEASED + (results[i] and EXTRA or 0)
    local new = char(COMPLETED, flags) .. sub(record, 3, 64) .. finished .. sub(record, 73, 76) .. order_key
      .. (results[i] or '') .. sub(record, position)
    put('HSET', 'j' .. sub(id, 1, 4), id, new)
    put('ZREM', 'leases', member)
    put('ZREM', 'w' .. int(at('>I4', record, 73)), member)
    put('ZREM', 'x' .. lane, member)
    put('ZADD', 'c' .. lane, score, member)
    count(lane, 'c', 1)
    count(lane, 't', now - at('>I8', record, 57))
    size = size + #new
    done[id], verdicts[i] = true, '1'
  else
    verdicts[i] = '0'
  end
end
flush()
if size > 0 then
  call('INCRBY', P .. 'bytes', size)
  for _, member in ipairs(ended) do record_change(member) end
  settle_all(lines)
  wake()
  tell_ends()
end
return {table.concat(verdicts), #ended}
