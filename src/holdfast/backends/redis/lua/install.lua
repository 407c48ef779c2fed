-- Makes an empty store, if there is none of this name; returns its version. ARGV[1] is a new id.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'version', '1', 'id', ARGV[1], 'shape', '0')
end
return redis.call('HGET', KEYS[1], 'version')
