-- Prolongs the entry of a token, Held or Abandoned; never shortens it.
--
-- ARGV[1] token   ARGV[2] lease in ms   ARGV[3] linger in ms
--
-- 1 prolonged   0 not the token's
local value = redis.call('GET', KEYS[1])
local head = 'H1' .. string.char(#ARGV[1]) .. ARGV[1]
if not value or string.sub(value, 1, #head) ~= head then
  return 0
end
local stored = tonumber(string.sub(value, #head + 1, #head + 13))
local linger = math.max(stored, tonumber(ARGV[3]))
local lease = math.max(redis.call('PTTL', KEYS[1]) - stored, tonumber(ARGV[2]))
-- When memory is full, the server refuses a script's first write, unless the write needs no
-- memory. It does not refuse the writes after it. SET repeats the time, as in settle.lua.
redis.call('PEXPIRE', KEYS[1], lease + linger)
if linger > stored then
  redis.call('SET', KEYS[1], head .. string.format('%013.0f', linger) .. string.sub(value, #head + 14), 'PX', lease + linger)
end
return 1
