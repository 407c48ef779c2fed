-- Applies groups of commands, each if its guards hold; there is no rule in it. `words`, from the one after `n` on: the
-- number of groups; for each the number of guards, and for each kind, key, field, value; the number of commands, and
-- for each the number of its words and the words. Then jobs to insert, and before them their seqs, 8 bytes each, if
-- these were taken before. If `mode` is 1, all or nothing, and the ids of the jobs must be new; if it is ?, that is
-- checked, and nothing written. Returns 1 or 0 for each group, or nil if nothing was written; and 1 or 0 for each job.
local function holds(kind, key, field, value)
  if kind == 'h' then return (call('HGET', key, field) or '') == value end
  if kind == 'unlocked' then return lock_holder() == '' end
  if kind == 'z' then return tonumber(call('ZSCORE', key, field) or 'nan') == tonumber(value) end
  return call(kind, key) == tonumber(value)
end

-- Whether a seq that was taken before is that of another job: a failover may have lost that it was taken.
local function is_given(seq)
  return tonumber(call('GET', P .. 'seq') or 0) < seq or string.find(id_of(seq), '%Z') ~= nil
end

local function apply(words, n, instant, mode)
  local groups, jobs, verdicts, failed = {}, {}, {}, false

  local function word()
    n = n + 1
    return words[n]
  end

  for g = 1, tonumber(word()) do
    local is_held, commands = true, {}
    for _ = 1, tonumber(word()) do
      local kind, key, field, value = word(), P .. word(), word(), word()
      is_held = is_held and holds(kind, key, field, value)
    end
    for c = 1, tonumber(word()) do
      local length = tonumber(word())
      commands[c] = {unpack(words, n + 1, n + length)}
      n = n + length
    end
    groups[g], verdicts[g] = is_held and commands or {}, is_held and '1' or '0'
    failed = failed or not is_held
  end
  local seqs, ids = word(), {}
  while n < #words do
    jobs[#jobs + 1] = word()
    ids[#jobs] = sub(jobs[#jobs], 1, 16)
  end
  if mode ~= '0' then
    for i, found in pairs(records(ids)) do failed = failed or found end
    for k = 1, #seqs, 8 do failed = failed or is_given(at('>I8', seqs, k)) end
    if failed then return nil end
    if mode == '?' then return '' end
  end

  local key_sets, scheduled, calm = {}, {}, {}
  local steps = {
    COUNT = function(words) count(words[2], words[3], 1) end,
    CHANGED = function(words) record_change(words[2]) end,
    WAKE = function() woken = true end,
    MARK = function(words) key_sets[words[2]] = true end,
    CALM = function(words) calm[words[2]] = true end,
    JOIN = function(words)
      call('ZADD', P .. 'o' .. words[2], words[4] ~= '' and words[4] or call('INCR', P .. 'seq'), words[3])
      key_sets[words[2]] = true
    end,
    LEAVE = function(words)
      call('ZREM', P .. 'o' .. words[2], words[3])
      if byte(words[2]) == 0 then leave_slot(words[2], words[3], words[4]) end
      key_sets[words[2]] = true
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
  local answers = #jobs > 0 and insert(jobs, instant, seqs) or ''
  settle_all(key_sets)
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
  notify_ends()
  return table.concat(verdicts), answers
end
