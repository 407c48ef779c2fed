-- Deletes ended jobs with all that belongs to them. ARGV in threes from ARGV[3] on: the set, the member, its score.
-- Returns 1 for each that is deleted; 0 for one that is no longer there; 2 for one that has a child that has not ended;
-- - for one that is left to the next call, because those before it have many children. Returns '' while a batch with
-- conditions has the lock.
local CHILDREN, MORE, looked_at, entries_left = 1000, 10, 0, 5000

local function is_needed(member)
  local children = call('SMEMBERS', P .. 'h' .. member)
  looked_at = looked_at + #children
  for from = 1, #children, 1000 do
    local ids = {}
    for i = from, math.min(from + 999, #children) do ids[#ids + 1] = sub(children[i], 9) end
    local found = records(ids)
    for i = 1, #ids do if found[i] and byte(found[i], 1) < COMPLETED then return true end end
  end
  return false
end

-- Takes the entries of jobs that are gone from the beginning of a ledger: those that were deleted now, and more if they
-- are behind these. A prune of many lanes reads a few entries of each.
local function trim(set, deleted)
  local page = deleted + MORE
  while entries_left > 0 do
    local ids, first = live(call('LRANGE', P .. set, 0, page - 1)), 1
    entries_left = entries_left - #ids
    while ids[first] == '' do first = first + 1 end
    if first > 1 then
      call('LPOP', P .. set, first - 1)
      local left = call('HINCRBY', P .. 'gone', sub(set, 2), 1 - first)
      if left <= 0 then call('HDEL', P .. 'gone', sub(set, 2)) end
    end
    if first <= page then return end
    page = 250
  end
end

if lock_holder() ~= '' then return '' end
local verdicts, size, chunks, buckets, ledgers = {}, 0, {}, {}, {}
for i = 3, #ARGV, 3 do
  local set, member = ARGV[i], ARGV[i + 1]
  local id = sub(member, 9)
  local bucket = P .. 'j' .. sub(id, 1, 4)
  local verdict = looked_at > CHILDREN and '-' or '0'
  local kept = call('HMGET', bucket, id, id .. 'g', id .. 'u')
  local is_there
  if byte(set) == 99 then  -- a ledger
    ledgers[set] = ledgers[set] or 0
    is_there = kept[1] and byte(kept[1], 1) == COMPLETED and sub(kept[1], 21, 28) == sub(member, 1, 8)
  elseif not kept[1] or byte(kept[1], 1) > COMPLETED then  -- no record: the server has evicted it
    is_there = tonumber(call('ZSCORE', P .. set, member) or 'nan') == tonumber(ARGV[i + 2])
  end
  if is_there and verdict == '0' then verdict = is_needed(member) and '2' or '1' end
  if verdict == '1' then
    if kept[2] then
      for k = 2, #kept[2], 25 do call('SREM', P .. 'h' .. sub(kept[2], k, k + 23), member) end
    end
    if kept[3] then  -- a key for a period stays until its end
      local key = sub(kept[3], 2)
      local holder = call('HGET', P .. 'u', key)
      if holder and sub(holder, 1, 16) == id and sub(holder, 18, 25) == '\0\0\0\0\0\0\0\0' then call('HDEL', P .. 'u', key) end
    end
    if kept[1] and byte(kept[1], 1) == COMPLETED then size = size + size_of(kept[1]) end
    call('HDEL', bucket, id, id .. 'p', id .. 'g', id .. 'u')
    call('UNLINK', P .. 'a' .. id)
    if ledgers[set] then
      call('HINCRBY', P .. 'gone', sub(set, 2), 1)
      ledgers[set] = ledgers[set] + 1
    else
      call('ZREM', P .. set, member)
    end
    local chunk = int(math.floor(at('>I8', member, 1) / CHUNK))
    chunks[chunk] = (chunks[chunk] or 0) + 1
    buckets[bucket] = sub(id, 1, 4)
  end
  verdicts[#verdicts + 1] = verdict
end
for chunk, number in pairs(chunks) do
  if call('HINCRBY', P .. 'chunks', chunk, -number) <= 0 then
    call('HDEL', P .. 'chunks', chunk)
    call('UNLINK', P .. 'i' .. chunk)
  end
end
for bucket, name in pairs(buckets) do
  if call('EXISTS', bucket) == 0 then call('ZREM', P .. 'buckets', name) end
end
for set, deleted in pairs(ledgers) do trim(set, deleted) end
if size > 0 then call('DECRBY', P .. 'bytes', size) end
return table.concat(verdicts)
