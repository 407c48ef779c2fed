-- Writes the effect of a handler together with the ends of its jobs; all of it or nothing.
--
-- ARGV: the leases, 32 bytes each (see complete.lua); reads, each its digest and words; how many of KEYS[2] and after
-- are saved, and how many bytes they may have; commands; the words of `write` and of `complete`, or none. Words come
-- after their number. Returns done, how many parents have ended, key sets to look at, and 1 if jobs are ready; or, with
-- nothing written: lost and 1 or 0 for each lease; changed and the number of a read; again, if a guard of `write` does
-- not hold; large, a key and its size; failed, the number of a command and its error.
local n = 3

local function word()
  n = n + 1
  return ARGV[n]
end

-- The next words; behind the two that every script has, if they are for another one.
local function words(list)
  for _ = 1, tonumber(word()) do list[#list + 1] = word() end
  return list
end

local text, ids, held = ARGV[3], {}, {}
for i = 1, #text / 32 do ids[i] = sub(text, i * 32 - 23, i * 32 - 8) end
local found, lost = records(ids), false
for i = 1, #ids do
  local record = found[i]
  local is_held = record and byte(record, 1) == RUNNING and sub(record, 49, 56) == sub(text, i * 32 - 7, i * 32)
  held[i], lost = is_held and '1' or '0', lost or not is_held
end
if lost then return {'lost', table.concat(held)} end

for i = 1, tonumber(word()) do
  local digest, command = word(), words({})
  local reply = redis.pcall(unpack(command))
  if redis.sha1hex(flat(reply)) ~= digest then return {'changed', i} end
end

local saves, most, commands = tonumber(word()), tonumber(word()), {}
for i = 1, tonumber(word()) do commands[i] = words({}) end
local change, ending = words({ARGV[1], ARGV[2]}), words({ARGV[1], ARGV[2]})
if #change > 2 then
  change[3] = '?'
  if write(change) == '!' then return {'again'} end
  change[3] = '1'
end

for i, command in ipairs(commands) do
  if not redis.acl_check_cmd(unpack(command)) then return {'failed', i, 'NOPERM'} end
end

-- A command that fails has written nothing itself. So what the commands before the last one write is saved.
local saved = {}
for k = 2, saves + 1 do
  local key = KEYS[k]
  most = most - (call('MEMORY', 'USAGE', key) or 0)
  if most < 0 then return {'large', key} end
  local dump = call('DUMP', key)
  if not redis.acl_check_cmd('DEL', key) or not redis.acl_check_cmd('RESTORE', key, 0, '') then
    return {'failed', 0, 'NOPERM'}
  end
  saved[k] = {dump, dump and call('PEXPIRETIME', key)}
end
for i, command in ipairs(commands) do
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err then
    for k, old in pairs(saved) do
      call('DEL', KEYS[k])
      if old[1] then call('RESTORE', KEYS[k], int(math.max(0, old[2])), old[1], 'ABSTTL') end
    end
    return {'failed', i, reply.err}
  end
end

if #change > 2 then write(change) end
local ended = #ending > 2 and complete(ending)[2] or 0
return {'done', ended, marked, woken and 1 or 0}
