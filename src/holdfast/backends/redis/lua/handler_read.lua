-- Runs one reading command, ARGV[4] and after, on keys of a handler. Returns the digest of the reply, its size, the
-- reply; of one that has more than ARGV[3] bytes, only the size so far.
local most, reply = tonumber(ARGV[3]), redis.pcall(unpack(ARGV, 4))
if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end

local function add_size(size, part)
  if type(part) == 'string' then return size + #part end
  if type(part) ~= 'table' then return size + 1 end
  for i = 1, #part do
    if size > most then break end
    size = add_size(size, part[i])
  end
  return size
end

local size = add_size(0, reply)
if size > most then return {'', size} end
local text = flat(reply)
return {redis.sha1hex(text), #text, reply}
