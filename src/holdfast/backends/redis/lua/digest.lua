-- A reply as one text, which is the same only for the same reply.
local function flat(reply)
  local kind = type(reply)
  if kind == 'string' then return '$' .. #reply .. ':' .. reply end
  if kind == 'number' then return ':' .. int(reply) end
  if kind ~= 'table' then return '-' end
  if reply.ok then return '+' .. reply.ok end
  if reply.err then return '!' .. reply.err end
  local parts = {'*', #reply, ':'}
  for i = 1, #reply do parts[i + 3] = flat(reply[i]) end
  return table.concat(parts)
end
