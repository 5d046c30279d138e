-- Returns the value of an entry and its remaining time, of one moment and from the master.
local value = redis.call('GET', KEYS[1])
if not value then
  return false
end
return {value, redis.call('PTTL', KEYS[1])}
