-- Leases ready jobs. ARGV: shape, worker, span, isolates, limit, bytes, lanes of 4 bytes each; the members, if a limit
-- concerns some of these lanes: those that are still ready, if there is room for all, and if the rates are as they were
-- read.
local shape, worker, span, isolates = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1'
local span_text = pack('>I8', span)
local limit, most, lanes, chosen = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], ARGV[10]
if known[3] ~= shape then return {'shape'} end

-- The first members by turn, then seq, over all lanes.
local function front()
  local sets, members = {}, {}
  for i = 1, #lanes, 4 do sets[#sets + 1] = 'r' .. int(number_at(lanes, i)) end
  if #sets == 1 then return call('ZRANGE', P .. sets[1], 0, limit - 1) end
  for i, place in ipairs(first_of(sets, limit)) do members[i] = place[3] end
  return members
end

local members, next_word, has_rates = {}, 11, false
if chosen == '' then
  members = front()
else
  for i = 1, #chosen, 24 do members[#members + 1] = sub(chosen, i, i + 23) end
  for _ = 1, tonumber(ARGV[next_word]) do
    local running, among = 0, ARGV[next_word + 2]
    for i = 1, #among, 4 do running = running + call('ZCARD', P .. 'x' .. int(at('>I4', among, i))) end
    if running > tonumber(ARGV[next_word + 1]) then return {'again'} end
    next_word = next_word + 2
  end
  for i = next_word + 1, #ARGV, 3 do
    has_rates = true
    if (call('HGET', P .. 'rates', ARGV[i]) or '0') ~= ARGV[i + 1] then return {'again'} end
  end
end
if #members == 0 then return {'none'} end

local ids, taken, missing, count, size, cut = {}, {}, {}, 0, 0, '0'
for i = 1, #members do ids[i] = sub(members[i], 9) end
local found = records(ids)
for i = 1, #members do
  local record = found[i]
  if not record then
    missing[#missing + 1] = members[i]
  elseif byte(record, 1) ~= READY then
    if has_rates then return {'again'} end  -- they would be moved too far
    cut = chosen ~= '' and '1' or cut  -- another claim was faster, and there are more
  else
    local position = 49
    if band(byte(record, 2), KEYED) > 0 then position = 51 + at('>I2', record, 49) end
    size = size + number_at(record, position)
    if count == limit or (size > most and count > 0) then
      cut = '1'
      break
    end
    count = count + 1
    taken[count] = i
  end
end
-- The server has evicted their records, or they were deleted since they were chosen.
if #missing > 0 then
  if count == 0 and chosen == '' then  -- more of them may lead: an evicted hash has the jobs of a minute
    limit, missing = 1000, {}
    members = front()
    for i = 1, #members do ids[i] = sub(members[i], 9) end
    for i, record in pairs(records(ids)) do
      if not record then missing[#missing + 1] = members[i] end
    end
  end
  for i = 1, #lanes, 4 do call('ZREM', P .. 'r' .. int(number_at(lanes, i)), unpack(missing)) end
  if count == 0 or has_rates then return {'again'} end
  cut = '1'
end
if count == 0 then return {chosen == '' and 'none' or 'again'} end
-- Then what is taken of each lane is the beginning of its set.
local is_front = chosen == '' and taken[count] == count

-- A failover may have lost the last fences; the clock has moved on since.
local fence = math.max((tonumber(call('GET', P .. 'fence')) or 0) + 1, now)
local fence_text = int(fence)
call('SET', P .. 'fence', fence_text)
local number = call('HGET', P .. 'worker', worker)
if not number then
  number = int(call('HINCRBY', KEYS[1], 'workers', 1))
  call('HSET', P .. 'worker', worker, number)
  call('HSET', P .. 'workers', number, worker)
end
local lease, expiry = pack('>I8I8', fence, now) .. span_text .. pack('>I4', tonumber(number)), int(now + span)
local leases, held = words_of('ZADD', 'leases'), words_of('ZADD', 'w' .. number)
local of_lanes, next_attempts, bucket, hash = {}, {}, nil, nil
local reply = {'jobs', fence_text, cut, ''}
for k = 1, count do
  local i = taken[k]
  local record, member, id = found[i], members[i], ids[i]
  local flags, attempt, lane = byte(record, 2), sub(record, 5, 8), of_lanes[sub(record, 29, 32)]
  if not lane then
    local name = int(number_at(record, 29))
    lane = {name = name, count = 0, ready = words_of('ZREM', 'r' .. name), running = words_of('ZADD', 'x' .. name)}
    of_lanes[sub(record, 29, 32)] = lane
  end
  if not next_attempts[attempt] then next_attempts[attempt] = pack('>I4', number_at(attempt, 1) + 1) end
  flags = flags - band(flags, RETRYING) + LEASED
  if isolates and byte(record, 4) > 0 then flags = flags + ISOLATED end
  record = char(RUNNING, flags) .. sub(record, 3, 4) .. next_attempts[attempt] .. sub(record, 9, 48) .. lease
    .. sub(record, 49)
  if bucket ~= sub(id, 1, 4) then
    bucket = sub(id, 1, 4)
    hash = words_of('HSET', 'j' .. bucket)
  end
  add(hash, id, record)
  add(leases, expiry, member)
  add(held, fence_text, member)
  add(lane.running, '0', member)
  if is_front then lane.count = lane.count + 1 else add(lane.ready, member) end
  if band(flags, APART) > 0 then record = record .. call('HGET', P .. 'j' .. bucket, id .. 'p') end
  taken[k], reply[k + 4] = id, record
end
reply[4] = table.concat(taken)
if is_front then
  for _, lane in pairs(of_lanes) do call('ZREMRANGEBYRANK', P .. 'r' .. lane.name, 0, lane.count - 1) end
end
if chosen ~= '' then
  for i = next_word + 1, #ARGV, 3 do call('HSET', P .. 'rates', ARGV[i], ARGV[i + 2]) end
end
flush()
return reply
