-- Moves at most ARGV[3] due jobs from scheduled to ready, the longest due first; returns how many, and key sets to look
-- at.
local sets, ids = call('ZRANGE', P .. 'due', '-inf', int(now), 'BYSCORE'), {}
local places, key_sets = first_of(sets, tonumber(ARGV[3])), {}
for i, place in ipairs(places) do
  if place[1] <= now then ids[i] = sub(place[3], 9) end
end
local found = records(ids)

local function move(id, record, member)
  local flags, lane = byte(record, 2), int(at('>I4', record, 29))
  local state, turn = READY, int(at('>i8', record, 13))
  if band(flags, KEYED) > 0 and byte(record, 51) == 0 then
    local key_set = key_set_of(lane, sub(record, 51, 50 + at('>I2', record, 49)))
    state, key_sets[key_set] = LIMITED, true
    put('ZADD', 'q' .. lane, int(at('>I8', member, 1)), member)
    put('ZADD', 'o' .. key_set, turn, member)
  else
    put_ready(lane, turn, member)
  end
  put('HSET', 'j' .. sub(id, 1, 4), id, char(state, flags - band(flags, RETRYING)) .. sub(record, 3))
end

for i, id in ipairs(ids) do
  local member = places[i][3]
  put('ZREM', places[i][4], member)
  if found[i] then move(id, found[i], member) end  -- or the server has evicted its record
end
settle_all(key_sets)
for _, set in ipairs(sets) do redue(set) end
wake()
return {#ids, marked}
