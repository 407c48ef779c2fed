-- Keeps the words in ARGV[7] and after for the batch ARGV[3]: pieces for `apply`, each with the number of its words in
-- front. If ARGV[4] is 1, the batch is complete, and enqueued. ARGV[5] is the time for which a batch with conditions
-- keeps the lock, '' for others; without words, it takes the lock or, if ARGV[4] is +, only keeps one that it has.
-- ARGV[6] is the number of words before these. Returns 0 if another batch has the lock, this one has lost it, or the
-- words before are no longer there.
local key, adds = P .. 'g' .. ARGV[3], #ARGV > 6 or ARGV[4] ~= '0'
if ARGV[5] ~= '' then
  local holder = lock_holder()
  if holder ~= ARGV[3] and (holder ~= '' or adds) then
    call('UNLINK', key)
    return 0
  end
end
if adds and call('LLEN', key) ~= tonumber(ARGV[6]) then return 0 end
if ARGV[5] ~= '' then
  call('SET', LOCK, ARGV[3] .. (ARGV[4] == '1' and NEVER or pack('>i8', now + tonumber(ARGV[5]))))
end
if #ARGV > 6 then
  call('RPUSH', key, unpack(ARGV, 7))
  call('EXPIRE', key, 300)
end
if ARGV[4] == '1' then
  call('PERSIST', key)
  call('RPUSH', P .. 'batches', ARGV[3] .. pack('>i8', now))
  call('PUBLISH', P .. 'wake', 'r')
end
return 1
