-- Keeps the jobs in ARGV[5] and after for the batch ARGV[3]; if ARGV[4] is 1, the batch is complete, and enqueued.
local key = P .. 'g' .. ARGV[3]
if #ARGV > 4 then call('RPUSH', key, unpack(ARGV, 5)) end
call('EXPIRE', key, 3600)
if ARGV[4] == '1' then
  call('PERSIST', key)
  call('RPUSH', P .. 'batches', ARGV[3] .. pack('>i8', now))
  call('PUBLISH', P .. 'wake', 'r')
end
return 1
