-- Applies the next piece of the first batch that is enqueued, and keeps the answers of its jobs. Returns whether a
-- piece of the batch ARGV[3] is left; '': of any.
local batch = call('LINDEX', P .. 'batches', 0)
if not batch then return 0 end
local name, key = sub(batch, 1, -9), P .. 'g' .. sub(batch, 1, -9)
local size = call('LPOP', key)
if size then
  local _, answers = apply(call('LPOP', key, size), 0, at('>i8', batch, #batch - 7), '0')
  call('APPEND', P .. 'v' .. name, answers)
  call('EXPIRE', P .. 'v' .. name, 3600)
end
if call('EXISTS', key) == 0 then
  call('LPOP', P .. 'batches')
  if lock_holder() == name then call('DEL', LOCK) end
end
return call('EXISTS', P .. (ARGV[3] == '' and 'batches' or 'g' .. ARGV[3]))
