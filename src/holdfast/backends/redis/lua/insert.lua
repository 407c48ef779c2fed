-- Inserts jobs, and returns a text with 1 for each that is new and 0 for each whose id is known. A job is 16 bytes of
-- id, lane, priority, max_attempts, kind, time, 2 bytes of length and the key, the payload's length, the body.
local DELAYED, INSTANT, WAITS, PARENT, SMALL = 1, 2, 4, 8, 1028

-- `given`: the seqs, 8 bytes each, if they were taken before; then a key set's places are newer than those that it has
-- got meanwhile.
local function insert(jobs, instant, given)
  local ids, fresh, answers, seen = {}, {}, {}, {}
  for i = 1, #jobs do ids[i] = sub(jobs[i], 1, 16) end
  local found = records(ids)
  for i, id in ipairs(ids) do
    local is_new = not found[i] and not seen[id]
    seen[id], answers[i] = true, is_new and '1' or '0'
    if is_new then fresh[#fresh + 1] = i end
  end
  if #fresh == 0 then return table.concat(answers) end
  local places = call('INCRBY', P .. 'seq', #fresh) - #fresh
  local enqueued, key_sets, buckets, numbers, turns, seqs = pack('>i8', instant), {}, {}, {}, {}, {}
  for n, i in ipairs(fresh) do
    local job, id, seq = jobs[i], ids[i], given and given ~= '' and at('>I8', given, i * 8 - 7) or places + n
    seqs[n] = seq
    local kind, lane, flags = byte(job, 29), int(number_at(job, 17)), 0
    local head_start = sub(job, 21, 24) == '\0\0\0\0' and 0 or at('>i4', job, 21) * STEP
    local turn, run
    if kind % WAITS == INSTANT then
      turn = sub(job, 30, 37)  -- as it came: later than the year 2255 it is more than a number of Lua can hold
      run = at('>i8', turn, 1) + head_start
    else
      run = instant + (kind % WAITS == DELAYED and at('>i8', job, 30) or 0)
      turn = turns[run - head_start]
      if not turn then
        turn = pack('>i8', run - head_start)
        turns[run - head_start] = turn
      end
    end
    local long, short = byte(job, 38, 39)
    local length = long * 256 + short
    local key, body = '', sub(job, 40 + length)
    local bucket, member = 'j' .. sub(id, 1, 4), pack('>I8', seq) .. id
    local state = run <= now and READY or SCHEDULED
    if length > 0 then
      flags, key = KEYED, sub(job, 38, 39 + length)
      if byte(key, 3) ~= 0 then state = BLOCKED elseif state == READY then state = LIMITED end
    end
    if band(kind, WAITS) > 0 then state = WAITING end
    if band(kind, PARENT) > 0 then flags = flags + FOLLOWED end
    if #body > SMALL then
      flags = flags + APART
      put('HSET', bucket, id .. 'p', sub(body, 5))
      body = sub(body, 1, 4)
    end
    put('HSET', bucket, id, char(state, flags, 0, 0) .. '\0\0\0\0\0\0\0\0' .. turn .. sub(member, 1, 8) .. sub(job, 17, 28)
      .. enqueued .. key .. body)
    if state == READY then
      put_ready(lane, int(run - head_start), member)
    elseif state == SCHEDULED then
      put_scheduled('s' .. lane, int(run), member)
    else
      put('ZADD', (state == LIMITED and 'q' or 'b') .. lane, int(seq), member)
    end
    if state == BLOCKED or state == LIMITED then
      local key_set = key_set_of(lane, sub(key, 3))
      put('ZADD', 'o' .. key_set, int(state == LIMITED and run - head_start or places + n), member)
      key_sets[key_set] = true
    end
    numbers[lane] = (numbers[lane] or 0) + 1
    buckets[bucket] = sub(id, 1, 4)
  end
  for _, name in pairs(buckets) do put('ZADD', 'buckets', 0, name) end
  for lane, number in pairs(numbers) do count(lane, 'e', number) end
  -- The ids by seq: a text of 16 bytes each for every 1000 seqs (which fits a page of the allocator), and how many of
  -- them exist.
  local from = 1
  while from <= #fresh do
    local chunk, offset = math.floor(seqs[from] / CHUNK), seqs[from] % CHUNK
    local to, text = from, {ids[fresh[from]]}
    while to < #fresh and seqs[to + 1] == seqs[to] + 1 and seqs[to + 1] % CHUNK > 0 do
      to = to + 1
      text[#text + 1] = ids[fresh[to]]
    end
    -- A text that grows gets twice the room that it needs; a new one is made whole.
    local key = P .. 'i' .. int(chunk)
    if call('HINCRBY', P .. 'chunks', int(chunk), #text) == #text then call('SETRANGE', key, CHUNK * 16 - 1, '\0') end
    call('SETRANGE', key, offset * 16, table.concat(text))
    from = to + 1
  end
  flush()
  settle_all(key_sets)
  return table.concat(answers)
end
