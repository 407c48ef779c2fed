-- Every script begins with this. KEYS[1] is `meta`; ARGV[1] is the id of the store, '' for any, and after it the stamp
-- of the lanes, if the script gets numbers of lanes for new jobs; ARGV[2] a test's clock.
--
-- A record, big-endian: state, flags, interrupted, lost (1 byte each), attempt (5), excused (9), turn (13), seq (21),
-- lane (29), priority (33), max_attempts (37), enqueued_at (41). If LEASED: fence (49), started_at (57), the lease's
-- span or, completed, finished_at (65), worker (73). If KEYED: 2 bytes of length and the order key, or NUL and the
-- limit key. If EXTRA: 4 bytes of length and what only Python reads. Then the payload's length, and the body, unless it
-- lies APART.
--
-- The ledger of a lane is a list of its completed jobs by their end: 7 bytes of the end, 6 of the seq. An entry stays
-- when its job is deleted, until it is the first; `gone` counts such entries.
--
-- Lua keeps 14 digits when it makes a text of a number: `int` keeps all.
local call, sub, byte, char, band = redis.call, string.sub, string.byte, string.char, bit.band
local pack, P = struct.pack, sub(KEYS[1], 1, -5)
local LIMITED, READY, SCHEDULED, BLOCKED, WAITING, RUNNING, COMPLETED = 0, 1, 2, 3, 4, 5, 6
local RETRYING, ISOLATED, KEYED, APART, ASKED, EXTRA, LEASED, FOLLOWED = 1, 2, 4, 8, 16, 32, 64, 128
local STEP, MINUTE, WORDS, CHUNK = 60000000, 60000000, 4000, 1000

local known = call('HMGET', KEYS[1], 'version', 'id', 'shape', 'lanes')
if known[1] ~= '1' then return redis.error_reply('HOLDFAST version ' .. (known[1] or '0')) end
if ARGV[1] ~= '' and known[2] ~= sub(ARGV[1], 1, 16) then return redis.error_reply('HOLDFAST another store') end
if #ARGV[1] > 16 and known[4] ~= sub(ARGV[1], 17) then return redis.error_reply('HOLDFAST other lanes') end
-- A node from which the slot is moving away has meta, but refuses a key that it does not find: before any write.
call('EXISTS', P .. 'probe')

local now = tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Formatting takes a microsecond, and most numbers of a script occur many times in it.
local texts = {}

local function int(number)
  local text = texts[number]
  if not text then
    text = string.format('%.0f', number)
    texts[number] = text
  end
  return text
end

local function at(format, text, position) return (struct.unpack(format, text, position)) end

-- The 4 bytes at a position as a number: twice as fast as `at`.
local function number_at(text, position)
  local a, b, c, d = byte(text, position, position + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function seq_of(member) return number_at(member, 1) * 4294967296 + number_at(member, 5) end

-- The id that a seq was given to; '' or zeros if it was not.
local function id_of(seq)
  local from = seq % CHUNK * 16
  return call('GETRANGE', P .. 'i' .. int(math.floor(seq / CHUNK)), from, from + 15)
end

-- The records of ids of 16 bytes, in their order; false for one that does not exist.
local function records(ids)
  local groups, found, last, group = {}, {}, nil, nil
  for i = 1, #ids do
    local name = sub(ids[i], 1, 4)
    if name ~= last then
      last, group = name, groups[name]
      if not group then
        group = {ids = {}, places = {}, n = 0}
        groups[name] = group
      end
    end
    local n = group.n + 1
    group.n, group.ids[n], group.places[n] = n, ids[i], i
  end
  for name, each in pairs(groups) do
    for from = 1, each.n, WORDS do
      local reply = call('HMGET', P .. 'j' .. name, unpack(each.ids, from, math.min(from + WORDS - 1, each.n)))
      for k = 1, #reply do found[each.places[from - 1 + k]] = reply[k] end
    end
  end
  return found
end

-- The bytes of a record, and of a payload that lies apart from it.
local function size_of(record)
  return #record + (band(byte(record, 2), APART) > 0 and number_at(record, #record - 3) or 0)
end

-- Writes are collected, and sent as few long commands. `n` is the number of words: `#` would search for it each time.
local queued, order, counts, counted, woken, first_due = {}, {}, {}, false, false, {}

local function words_of(command, key)
  local keys = queued[command]
  if not keys then
    keys = {}
    queued[command] = keys
  end
  local words = keys[key]
  if not words then
    words = {command, P .. key, n = 2}
    keys[key], order[#order + 1] = words, words
  end
  return words
end

local function add(words, one, two)
  local n = words.n + 1
  words[n] = one
  if two then
    n = n + 1
    words[n] = two
  end
  words.n = n
end

local function put(command, key, one, two) add(words_of(command, key), one, two) end

local function put_ready(lane, turn, member)
  local words = words_of('ZADD', 'r' .. lane)
  if words.n == 2 and call('EXISTS', words[2]) == 0 then woken = true end
  add(words, turn, member)
end

local function put_scheduled(set, run, member)
  put('ZADD', set, run, member)
  if not first_due[set] or tonumber(run) < tonumber(first_due[set]) then first_due[set] = run end
end

local function count(lane, thing, number)
  local field = lane .. thing
  counts[field] = (counts[field] or 0) + number
  counted = true
end

local function flush()
  for _, words in ipairs(order) do
    for from = 3, words.n, WORDS do
      call(words[1], words[2], unpack(words, from, math.min(from + WORDS - 1, words.n)))
    end
  end
  for set, run in pairs(first_due) do
    if call('ZADD', P .. 'due', 'LT', 'CH', run, set) == 1 then woken = true end
  end
  if counted then
    local minute = int(now - now % MINUTE)
    for field, number in pairs(counts) do
      local is_new = call('HINCRBY', P .. 'n' .. minute, field, int(number)) == number
      if is_new then call('ZADD', P .. 'minutes', minute, minute) end
    end
  end
  queued, order, counts, counted, first_due = {}, {}, {}, false, {}
end

-- After a removal from a set of scheduled jobs.
local function redue(set)
  local first = call('ZRANGE', P .. set, 0, 0, 'WITHSCORES')
  if first[1] then call('ZADD', P .. 'due', first[2], set) else call('ZREM', P .. 'due', set) end
end

local function wake()
  if woken then call('PUBLISH', P .. 'wake', 'r') end
end

local function notify_ends()
  if call('EXISTS', P .. 'ends') == 1 then call('PUBLISH', P .. 'wake', 'e') end
end

-- The children of this job, or the job itself, are to be decided again.
local function record_change(member)
  local number = call('INCR', P .. 'change')
  call('ZADD', P .. 'changed', number, pack('>I8', number) .. member)
end

-- A key set has the jobs of one key. That of an order key of a queue has its unfinished jobs, by place: the first is
-- the head; only it is not blocked. That of a limit key, whose name begins with NUL and its lane, has those that wait
-- for a slot, by turn.
local lane_names, marked, mark = {}, {}, nil

local function key_set_of(lane, key)
  if byte(key) == 0 then return '\0' .. lane .. key end
  local name = lane_names[lane]
  if not name then
    name = string.match(call('LINDEX', P .. 'lanes', lane), '^[^%z]*')
    lane_names[lane] = name
  end
  return name .. '\0' .. key
end

-- A job of a limit key leaves its slot, if it has one. The start of an attempt that is still to be counted is kept.
local function leave_slot(key_set, member, started)
  call('ZREM', P .. 'm' .. key_set, member)
  if started ~= '' and call('HEXISTS', P .. 'l' .. key_set, member) == 1 then
    call('HSET', P .. 'l' .. key_set, member, 's' .. started)
  else
    call('HDEL', P .. 'l' .. key_set, member)
  end
end

-- Which jobs of a limit key are admitted is decided outside of scripts: its key set is marked for that.
local function mark_key_set(key_set)
  if not mark then  -- as a fence: a failover may have lost the last ones
    mark = int(math.max((tonumber(call('GET', P .. 'marks')) or 0) + 1, now))
    call('SET', P .. 'marks', mark)
  end
  put('HSET', 'l' .. key_set, 'v', mark)
  put('ZADD', 'y' .. string.match(key_set, '%d+'), 0, key_set)
  put('ZADD', 'wakes', 0, key_set)
  marked[#marked + 1] = key_set
end

-- A key set without a head takes its first waiting job: ready, or scheduled if it is not yet due. A job whose record
-- the server has evicted leaves its key set.
local function settle(key_set)
  if byte(key_set) == 0 then return mark_key_set(key_set) end
  local key, member, id, record = P .. 'o' .. key_set, nil, nil, nil
  for _ = 1, 1000 do
    member = call('ZRANGE', key, 0, 0)[1]
    id = member and sub(member, 9)
    record = member and call('HGET', P .. 'j' .. sub(id, 1, 4), id)
    if record or not member then break end
    call('ZREM', key, member)
  end
  call(call('ZCARD', key) > 1 and 'SADD' or 'SREM', P .. 'lines', key_set)
  if not record or byte(record, 1) ~= BLOCKED then return end
  local turn, lane = at('>i8', record, 13), int(at('>I4', record, 29))
  local run = turn + at('>i4', record, 33) * STEP
  local state = run <= now and READY or SCHEDULED
  call('ZREM', P .. 'b' .. lane, member)
  put('HSET', 'j' .. sub(id, 1, 4), id, char(state) .. sub(record, 2))
  if state == READY then put_ready(lane, int(turn), member) else put_scheduled('s' .. lane, int(run), member) end
end

local function settle_all(key_sets)
  for key_set in pairs(key_sets) do settle(key_set) end
  flush()
end
