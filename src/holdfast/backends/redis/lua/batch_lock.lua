-- While a batch with conditions is staged and inserted, it has the lock: its name and when that expires. Meanwhile no
-- other call writes conditions, and no job is deleted. A lock that has expired is removed: its batch can no longer be
-- enqueued.
local LOCK, NEVER = P .. 'batch_lock', '\127\255\255\255\255\255\255\255'

-- The batch that has the lock, or ''.
local function lock_holder()
  local text = call('GET', LOCK)
  if not text then return '' end
  if sub(text, 17) == NEVER or at('>i8', text, 17) > now then return sub(text, 1, 16) end
  call('DEL', LOCK)
  return ''
end
