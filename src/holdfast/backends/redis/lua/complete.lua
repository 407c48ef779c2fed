-- Completes the jobs that are held under the leases in ARGV[3]: 32 bytes each, seq, id and fence. From ARGV[4] on
-- pairs: the number of a lease, and its result, packed. Returns 1 for each that is done, how many of them are parents,
-- key sets to look at, and 1 if other jobs are ready because of it.
local text, results, ids, verdicts = ARGV[3], {}, {}, {}
for i = 4, #ARGV, 2 do results[tonumber(ARGV[i])] = ARGV[i + 1] end
for i = 1, #text / 32 do ids[i] = sub(text, i * 32 - 23, i * 32 - 8) end
local found, key_sets, ended, done, size = records(ids), {}, {}, {}, 0
local leases, of_lanes, of_workers, starts, bucket, hash = words_of('ZREM', 'leases'), {}, {}, {}, nil, nil
for i = 1, #ids do
  local id, record, place = ids[i], found[i], i * 32 - 31
  local is_held = record and byte(record, 1) == RUNNING and sub(record, 49, 56) == sub(text, place + 24, place + 31)
  if is_held and not done[id] then
    local flags, member = byte(record, 2), sub(text, place, place + 23)
    local lane, held, started = of_lanes[sub(record, 29, 32)], of_workers[sub(record, 73, 76)], sub(record, 57, 64)
    if not lane then
      local name = int(number_at(record, 29))
      lane = {name = name, count = 0, time = 0}
      lane.running, lane.ledger = words_of('ZREM', 'x' .. name), words_of('RPUSH', 'c' .. name)
      -- A ledger is in order even if the clock has stepped back.
      lane.finished = pack('>I8', now)
      local last = call('LINDEX', lane.ledger[2], -1)
      if last and at('>I8', '\0' .. sub(last, 1, 7), 1) > now then lane.finished = '\0' .. sub(last, 1, 7) end
      of_lanes[sub(record, 29, 32)] = lane
    end
    if not held then
      held = words_of('ZREM', 'w' .. int(number_at(record, 73)))
      of_workers[sub(record, 73, 76)] = held
    end
    if not starts[started] then starts[started] = at('>I8', started, 1) end
    local order_key, position = '', 77
    if band(flags, KEYED) > 0 then
      position = 79 + at('>I2', record, 77)
      order_key = sub(record, 77, position - 1)
      local key_set = key_set_of(lane.name, sub(order_key, 3))
      if byte(order_key, 3) == 0 then
        leave_slot(key_set, member, int(starts[started]))
      else
        put('ZREM', 'o' .. key_set, member)
      end
      key_sets[key_set] = true
    end
    if band(flags, EXTRA) > 0 then position = position + 4 + at('>I4', record, position) end
    if band(flags, ASKED) > 0 then put('ZREM', 'asked', member) end
    if band(flags, FOLLOWED) > 0 then ended[#ended + 1] = member end
    flags = band(flags, KEYED + APART) + LEASED + (results[i] and EXTRA or 0)
    local new = char(COMPLETED, flags) .. sub(record, 3, 64) .. lane.finished .. sub(record, 73, 76) .. order_key
      .. (results[i] or '') .. sub(record, position)
    if bucket ~= sub(id, 1, 4) then
      bucket = sub(id, 1, 4)
      hash = words_of('HSET', 'j' .. bucket)
    end
    add(hash, id, new)
    add(leases, member)
    add(held, member)
    add(lane.running, member)
    add(lane.ledger, sub(lane.finished, 2) .. sub(member, 3, 8))
    lane.count, lane.time = lane.count + 1, lane.time + now - starts[started]
    size = size + size_of(new)
    done[id], verdicts[i] = true, '1'
  else
    verdicts[i] = '0'
  end
end
for _, lane in pairs(of_lanes) do
  count(lane.name, 'c', lane.count)
  count(lane.name, 't', lane.time)
end
flush()
if size > 0 then
  call('INCRBY', P .. 'bytes', size)
  for _, member in ipairs(ended) do record_change(member) end
  settle_all(key_sets)
  wake()
  notify_ends()
end
return {table.concat(verdicts), #ended, marked, woken and 1 or 0}
