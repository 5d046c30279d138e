-- Removes the entry of a token. An entry with a fence, its own or an earlier holder's, leaves a
-- stub behind for a minute. So fences grow even if the server's clock is set back within that
-- minute. Later fences follow the clock.
--
-- ARGV[1] how the entry begins if the token holds it
-- ARGV[2] "receipt" if the token's receipt is to be removed too
-- The last is "publish" if waiters are to be notified.
--
-- 1 removed   0 not the token's, or in another state
local value = redis.call('GET', KEYS[1])
if not value then
  return 0
end
local held = ARGV[1]
local head = string.sub(value, 1, #held)
if head ~= held and (ARGV[2] ~= 'receipt' or head ~= 'S' .. string.sub(held, 2)) then
  return 0
end
local fence = string.sub(value, #head + 14, #head + 29)
if fence == '0000000000000000' then
  redis.call('DEL', KEYS[1])
else
  -- When memory is full, PEXPIRE is not refused, because it needs no memory, and SET is not refused, because
  -- it follows a write. After a DEL it is refused where the slot moves to another node of a Cluster.
  redis.call('PEXPIRE', KEYS[1], 60000)
  redis.call('SET', KEYS[1], 'F1\0' .. '0000000000000' .. fence .. '\0\0\0\0', 'PX', 60000)
end
if ARGV[#ARGV] == 'publish' then
  redis.pcall('PUBLISH', KEYS[1], '') -- a user without the permission to publish can still release
end
return 1
