-- Deletes the entry of a token, Held or Abandoned. The SET with NX that follows in the same
-- transaction then puts the receipt in its place. In all other cases the key is taken
-- afterwards, so that this SET does nothing.
--
-- ARGV[1] token   ARGV[2] given if waiters are to be notified
--
-- 2 deleted   1 settled by an earlier call   0 not the token's
local value = redis.call('GET', KEYS[1])
if not value then
  -- The stub of a released entry, which a claim treats as none.
  redis.call('SET', KEYS[1], 'F1\0' .. '0000000000000' .. '0000000000000000' .. '\0\0\0\0', 'PX', 1)
  return 0
end
local tail = '1' .. string.char(#ARGV[1]) .. ARGV[1]
if string.sub(value, 2, #tail + 1) ~= tail then
  return 0
end
local state = string.sub(value, 1, 1)
if state ~= 'H' then
  return state == 'S' and 1 or 0
end
redis.call('DEL', KEYS[1])
if ARGV[2] then
  redis.pcall('PUBLISH', KEYS[1], '') -- a user without the permission to publish can still settle
end
return 2
