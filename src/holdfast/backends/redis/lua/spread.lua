-- Inserts at most ARGV[3] jobs of the first batch that is enqueued; returns how many, and keeps the answers.
local batch = call('LINDEX', P .. 'batches', 0)
if not batch then return 0 end
local name = sub(batch, 1, -9)
local jobs = call('LPOP', P .. 'g' .. name, ARGV[3]) or {}
if #jobs > 0 then
  call('APPEND', P .. 'v' .. name, insert(jobs, at('>i8', batch, #batch - 7)))
  call('EXPIRE', P .. 'v' .. name, 3600)
end
if call('EXISTS', P .. 'g' .. name) == 0 then call('LPOP', P .. 'batches') end
wake()
return #jobs
