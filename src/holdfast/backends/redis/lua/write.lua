-- Applies groups of commands, each if its guards hold; there is no rule in it. If ARGV[3] is 1, all groups or none. Then
-- ARGV[4] groups: the number of guards, and for each kind, key, field, value; the number of commands, and for each the
-- number of its words and the words. Then the seqs' base, and jobs to insert, whose ids must be new.
-- Returns 1 or 0 for each group, or '!' if nothing was written.
local n, groups, jobs = 4, {}, {}

local function word()
  n = n + 1
  return ARGV[n]
end

local function holds(kind, key, field, value)
  if kind == 'h' then return (call('HGET', key, field) or '') == value end
  if kind == 'z' then return tonumber(call('ZSCORE', key, field) or 'nan') == tonumber(value) end
  return call(kind, key) == tonumber(value)
end

local verdicts, failed = {}, false
for g = 1, tonumber(ARGV[4]) do
  local is_held, commands = true, {}
  for _ = 1, tonumber(word()) do
    local kind, key, field, value = word(), P .. word(), word(), word()
    is_held = is_held and holds(kind, key, field, value)
  end
  for c = 1, tonumber(word()) do
    local length = tonumber(word())
    commands[c] = {unpack(ARGV, n + 1, n + length)}
    n = n + length
  end
  groups[g], verdicts[g] = is_held and commands or {}, is_held and '1' or '0'
  failed = failed or not is_held
end
local base, ids = word(), {}
while n < #ARGV do
  jobs[#jobs + 1] = word()
  ids[#jobs] = sub(jobs[#jobs], 1, 16)
end
for i, found in pairs(records(ids)) do failed = failed or found end
if ARGV[3] == '1' and failed then return '!' end

local lines, scheduled, calm = {}, {}, {}
local steps = {
  COUNT = function(words) count(words[2], words[3], 1) end,
  CHANGED = function(words) record_change(words[2]) end,
  WAKE = function() woken = true end,
  CALM = function(words) calm[words[2]] = true end,
  JOIN = function(words)
    call('ZADD', P .. 'o' .. words[2], call('INCR', P .. 'seq'), words[3])
    lines[words[2]] = true
  end,
  LEAVE = function(words)
    call('ZREM', P .. 'o' .. words[2], words[3])
    lines[words[2]] = true
  end,
  -- Marks the link of a child to the parent of this seq as broken; without a seq, none is.
  BROKEN = function(words)
    local key, id, seq = P .. 'j' .. sub(words[2], 1, 4), words[2] .. 'g', words[3]
    local links = call('HGET', key, id)
    if not links then return end
    local parts = {sub(links, 1, 1)}
    for k = 2, #links, 25 do
      local mark = seq ~= '' and (sub(links, k, k + 7) == seq and '\1' or sub(links, k + 24, k + 24)) or '\0'
      parts[#parts + 1] = sub(links, k, k + 23) .. mark
    end
    call('HSET', key, id, table.concat(parts))
  end,
}
for _, commands in ipairs(groups) do
  for _, words in ipairs(commands) do
    local step = steps[words[1]]
    if step then
      step(words)
    else
      if string.match(words[2], '^[st]%d+$') then scheduled[words[2]] = true end
      if words[1] == 'ZADD' and string.match(words[2], '^[r]%d+$') then woken = true end
      words[2] = P .. words[2]
      call(unpack(words))
    end
  end
end
for set in pairs(scheduled) do
  redue(set)
  woken = true
end
flush()
if #jobs > 0 then insert(jobs, now, tonumber(base)) end
settle_all(lines)
-- The leases that these workers keep are no longer isolated.
for worker in pairs(calm) do
  local members, kept = call('ZRANGE', P .. 'w' .. worker, 0, 9999), {}
  for i, member in ipairs(members) do kept[i] = sub(member, 9) end
  for from = 1, #kept, 1000 do
    local some = {unpack(kept, from, math.min(from + 999, #kept))}
    for i, record in pairs(records(some)) do
      if record and band(byte(record, 2), ISOLATED) > 0 then
        put('HSET', 'j' .. sub(some[i], 1, 4), some[i], char(byte(record, 1), byte(record, 2) - ISOLATED) .. sub(record, 3))
      end
    end
  end
end
flush()
wake()
tell_ends()
return table.concat(verdicts)
