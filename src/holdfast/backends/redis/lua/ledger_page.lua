-- Returns entries of the ledger ARGV[3] and their ids, the last first: those of jobs that ended before ARGV[4], or then
-- and whose seq is smaller than ARGV[5]; ARGV[6] of them or, with all that ended at the same time as the last, more.
-- Before them the end at which to continue, '' if nothing is left: no call looks at many more than MOST entries, and
-- those of deleted jobs have no id.
local key, last, before, limit = P .. ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local PAGE, MOST = 100, 1000

local function end_of(entry) return at('>I8', '\0' .. sub(entry, 1, 7), 1) end

-- How many entries ended at `last` at the latest.
local low, high = 0, call('LLEN', key)
while low < high do
  local middle = math.floor((low + high) / 2)
  if end_of(call('LINDEX', key, middle)) <= last then low = middle + 1 else high = middle end
end

local answer, looked_at, previous = {''}, 0, nil
while low > 0 do
  local from = math.max(0, low - PAGE)
  local entries = call('LRANGE', key, from, low - 1)
  local ids = live(entries)
  for i = #entries, 1, -1 do
    local finished = end_of(entries[i])
    if finished ~= previous and (#answer > limit or looked_at >= MOST) then
      answer[1] = int(finished)
      return answer
    end
    looked_at, previous = looked_at + 1, finished
    local is_before = finished < last or at('>I8', '\0\0' .. sub(entries[i], 8), 1) < before
    if is_before and ids[i] ~= '' then answer[#answer + 1] = entries[i] .. ids[i] end
  end
  low = from
end
return answer
