-- Returns the first ARGV[1] bytes of the value, which the receipt comes last in,
-- and the time left.
local value = redis.call('GET', KEYS[1])
if not value then
  return false
end
return { string.sub(value, 1, tonumber(ARGV[1])), redis.call('PTTL', KEYS[1]) }
