-- Inserts jobs, and returns a text with 1 for each that is new and 0 for each whose id is known. A job is 16 bytes of id,
-- lane, priority, max_attempts, kind, time, 2 bytes of length and the order key, the payload's length, the body.
local DELAYED, INSTANT, WAITS, PARENT, CHUNK, SMALL = 1, 2, 4, 8, 1024, 1028

-- `base`: the seqs were taken before; then a line's places are newer than those that it has got meanwhile.
local function insert(jobs, instant, base)
  local ids, fresh, answers, seen = {}, {}, {}, {}
  for i = 1, #jobs do ids[i] = sub(jobs[i], 1, 16) end
  local found = records(ids)
  for i, id in ipairs(ids) do
    local is_new = not found[i] and not seen[id]
    seen[id], answers[i] = true, is_new and '1' or '0'
    if is_new then fresh[#fresh + 1] = i end
  end
  if #fresh == 0 then return table.concat(answers) end
  local after = base or call('INCRBY', P .. 'seq', #fresh) - #fresh
  local places = base and call('INCRBY', P .. 'seq', #fresh) - #fresh or after
  local enqueued, lines, buckets = pack('>i8', instant), {}, {}
  for n, i in ipairs(fresh) do
    local job, id, seq = jobs[i], ids[i], after + n
    local kind, lane, flags = byte(job, 29), int(at('>I4', job, 17)), 0
    local head_start = at('>i4', job, 21) * STEP
    local turn
    if kind % WAITS == INSTANT then
      turn = sub(job, 30, 37)  -- as it came: later than the year 2255 it is more than a number of Lua can hold
    else
      turn = pack('>i8', instant + (kind % WAITS == DELAYED and at('>i8', job, 30) or 0) - head_start)
    end
    local run = at('>i8', turn, 1) + head_start
    local length = at('>I2', job, 38)
    local order_key, body = '', sub(job, 40 + length)
    local bucket, member = 'j' .. sub(id, 1, 4), pack('>I8', seq) .. id
    local state = run <= now and READY or SCHEDULED
    if length > 0 then
      flags, state, order_key = KEYED, BLOCKED, sub(job, 38, 39 + length)
    end
    if band(kind, WAITS) > 0 then state = WAITING end
    if band(kind, PARENT) > 0 then flags = flags + FOLLOWED end
    if #body > SMALL then
      flags = flags + APART
      put('HSET', bucket, id .. 'p', sub(body, 5))
      body = sub(body, 1, 4)
    end
    put('HSET', bucket, id, char(state, flags, 0, 0) .. '\0\0\0\0\0\0\0\0' .. turn .. sub(member, 1, 8) .. sub(job, 17, 28)
      .. enqueued .. order_key .. body)
    if state == READY then
      put_ready(lane, int(run - head_start), member)
    elseif state == SCHEDULED then
      put_scheduled('s' .. lane, int(run), member)
    else
      put('ZADD', 'b' .. lane, int(seq), member)
    end
    if state == BLOCKED then
      local line = line_of(lane, sub(order_key, 3))
      put('ZADD', 'o' .. line, int(places + n), member)
      lines[line] = true
    end
    count(lane, 'e', 1)
    buckets[bucket] = sub(id, 1, 4)
  end
  for _, name in pairs(buckets) do put('ZADD', 'buckets', 0, name) end
  -- The ids by seq: a text of 16 bytes each for every 1024 seqs, and how many of them exist.
  local from = 1
  while from <= #fresh do
    local chunk, offset = math.floor((after + from) / CHUNK), (after + from) % CHUNK
    local to = math.min(#fresh, from + CHUNK - 1 - offset)
    local text = {}
    for n = from, to do text[#text + 1] = ids[fresh[n]] end
    call('SETRANGE', P .. 'i' .. int(chunk), offset * 16, table.concat(text))
    call('HINCRBY', P .. 'chunks', int(chunk), #text)
    from = to + 1
  end
  flush()
  settle_all(lines)
  return table.concat(answers)
end
