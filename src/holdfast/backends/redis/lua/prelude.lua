-- Every script begins with this. KEYS[1] is `meta`; ARGV[1] is the id of the store, '' for any; ARGV[2] a test's clock.
--
-- A record, big-endian: state, flags, interrupted, lost (1 byte each), attempt (5), excused (9), turn (13), seq (21),
-- lane (29), priority (33), max_attempts (37), enqueued_at (41). If LEASED: fence (49), started_at (57), the lease's span
-- or, completed, finished_at (65), worker (73). If KEYED: 2 bytes of length and the order key. If EXTRA: 4 bytes of
-- length and what only Python reads. Then the payload's length, and the body, unless it lies APART.
--
-- Lua keeps 14 digits when it makes a text of a number: `int` keeps all.
local call, sub, byte, char, band = redis.call, string.sub, string.byte, string.char, bit.band
local pack, P = struct.pack, sub(KEYS[1], 1, -5)
local READY, SCHEDULED, BLOCKED, WAITING, RUNNING, COMPLETED = 1, 2, 3, 4, 5, 6
local RETRYING, ISOLATED, KEYED, APART, ASKED, EXTRA, LEASED, FOLLOWED = 1, 2, 4, 8, 16, 32, 64, 128
local STEP, MINUTE, WORDS = 60000000, 60000000, 4000

local known = call('HMGET', KEYS[1], 'version', 'id')
if known[1] ~= '1' then return redis.error_reply('HOLDFAST version ' .. (known[1] or '0')) end
if ARGV[1] ~= '' and known[2] ~= ARGV[1] then return redis.error_reply('HOLDFAST another store') end
-- A node from which the slot is moving away has meta, but refuses a key that it does not find: before any write.
call('EXISTS', P .. 'probe')

local now = tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local function int(number) return string.format('%.0f', number) end

local function at(format, text, position) return (struct.unpack(format, text, position)) end

-- The records of ids of 16 bytes, in their order; false for one that does not exist.
local function records(ids)
  local words, places, found = {}, {}, {}
  for i = 1, #ids do
    local name = sub(ids[i], 1, 4)
    local group = words[name]
    if not group then
      group = {'HMGET', P .. 'j' .. name}
      words[name], places[name] = group, {}
    end
    group[#group + 1] = ids[i]
    places[name][#group - 2] = i
  end
  for name, group in pairs(words) do
    for from = 3, #group, WORDS do
      local reply = call('HMGET', group[2], unpack(group, from, math.min(from + WORDS - 1, #group)))
      for k = 1, #reply do found[places[name][from - 3 + k]] = reply[k] end
    end
  end
  return found
end

-- Writes are collected, and sent as few long commands.
local queued, order, counts, counted, woken, first_due = {}, {}, {}, false, false, {}

local function put(command, key, one, two)
  local name = command .. key
  local words = queued[name]
  if not words then
    words = {command, P .. key}
    queued[name], order[#order + 1] = words, words
  end
  words[#words + 1] = one
  if two then words[#words + 1] = two end
end

local function put_ready(lane, turn, member)
  if not queued['ZADDr' .. lane] and call('EXISTS', P .. 'r' .. lane) == 0 then woken = true end
  put('ZADD', 'r' .. lane, turn, member)
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
    if #words <= WORDS then
      call(unpack(words))
    else
      for from = 3, #words, WORDS do
        call(words[1], words[2], unpack(words, from, math.min(from + WORDS - 1, #words)))
      end
    end
  end
  for set, run in pairs(first_due) do
    if call('ZADD', P .. 'due', 'LT', 'CH', run, set) == 1 then woken = true end
  end
  if counted then
    local minute = int(now - now % MINUTE)
    for field, number in pairs(counts) do call('HINCRBY', P .. 'n' .. minute, field, int(number)) end
    call('ZADD', P .. 'minutes', minute, minute)
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

local function tell_ends()
  if call('EXISTS', P .. 'ends') == 1 then call('PUBLISH', P .. 'wake', 'e') end
end

-- The children of this job, or the job itself, are to be decided again.
local function record_change(member)
  local number = call('INCR', P .. 'change')
  call('ZADD', P .. 'changed', number, pack('>I8', number) .. member)
end

-- A line is an order key of a queue: a set of its unfinished jobs by place. The first is the head; only it is not blocked.
local lane_names = {}

local function line_of(lane, order_key)
  local name = lane_names[lane]
  if not name then
    name = string.match(call('LINDEX', P .. 'lanes', lane), '^[^%z]*')
    lane_names[lane] = name
  end
  return name .. '\0' .. order_key
end

-- A line without a head takes its first waiting job: ready, or scheduled if it is not yet due.
local function settle(line)
  local key = P .. 'o' .. line
  call(call('ZCARD', key) > 1 and 'SADD' or 'SREM', P .. 'lines', line)
  local member = call('ZRANGE', key, 0, 0)[1]
  if not member then return end
  local id = sub(member, 9)
  local record = call('HGET', P .. 'j' .. sub(id, 1, 4), id)
  if byte(record, 1) ~= BLOCKED then return end
  local turn, lane = at('>i8', record, 13), int(at('>I4', record, 29))
  local run = turn + at('>i4', record, 33) * STEP
  local state = run <= now and READY or SCHEDULED
  call('ZREM', P .. 'b' .. lane, member)
  put('HSET', 'j' .. sub(id, 1, 4), id, char(state) .. sub(record, 2))
  if state == READY then put_ready(lane, int(turn), member) else put_scheduled('s' .. lane, int(run), member) end
end

local function settle_all(lines)
  for line in pairs(lines) do settle(line) end
  flush()
end
