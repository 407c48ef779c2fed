-- While a batch with conditions is staged and inserted, it has the gate: its name and when that expires. Meanwhile no other
-- call writes conditions, and no job is deleted. A gate that has expired is removed: its batch can no longer be enqueued.
local GATE, NEVER = P .. 'gate', '\127\255\255\255\255\255\255\255'

-- The batch that has the gate, or ''.
local function gate()
  local text = call('GET', GATE)
  if not text then return '' end
  if sub(text, 17) == NEVER or at('>i8', text, 17) > now then return sub(text, 1, 16) end
  call('DEL', GATE)
  return ''
end
