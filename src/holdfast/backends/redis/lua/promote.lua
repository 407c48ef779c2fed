-- Moves at most ARGV[3] due jobs from scheduled to ready, the longest due first; returns how many.
local limit, places = tonumber(ARGV[3]), {}
local sets = call('ZRANGE', P .. 'due', '-inf', int(now), 'BYSCORE')
for _, set in ipairs(sets) do
  local found = call('ZRANGE', P .. set, '-inf', int(now), 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
  for k = 1, #found, 2 do places[#places + 1] = {tonumber(found[k + 1]), at('>I8', found[k], 1), found[k], set} end
end
if #sets > 1 then
  table.sort(places, function(one, other)
    if one[1] ~= other[1] then return one[1] < other[1] end
    return one[2] < other[2]
  end)
end
local ids, moved = {}, math.min(limit, #places)
for i = 1, moved do ids[i] = sub(places[i][3], 9) end
local found = records(ids)
for i, id in ipairs(ids) do
  local record, member = found[i], places[i][3]
  local flags, lane = byte(record, 2), int(at('>I4', record, 29))
  put('ZREM', places[i][4], member)
  put('HSET', 'j' .. sub(id, 1, 4), id, char(READY, flags - band(flags, RETRYING)) .. sub(record, 3))
  put_ready(lane, int(at('>i8', record, 13)), member)
end
flush()
for _, set in ipairs(sets) do redue(set) end
wake()
return moved
