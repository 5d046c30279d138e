-- Returns the first ARGV[1] bytes of the value, at whose end the receipt stands, the time left,
-- and 1 if the value has more bytes, else 0.
local value = redis.call('GET', KEYS[1])
if not value then
  return false
end
local most = tonumber(ARGV[1])
return { string.sub(value, 1, most), redis.call('PTTL', KEYS[1]), #value > most and 1 or 0 }
