-- Runs one reading command, ARGV[3] and after, on keys of a handler. Returns the digest of the reply, its size, the reply.
local reply = redis.pcall(unpack(ARGV, 3))
if type(reply) == 'table' and reply.err then return redis.error_reply(reply.err) end
local text = flat(reply)
return {redis.sha1hex(text), #text, reply}
