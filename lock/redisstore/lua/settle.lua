-- Turns the entry of a token, Held or Abandoned, into a receipt.
--
-- ARGV[1] token   ARGV[2] keep in ms   ARGV[3] receipt
-- ARGV[4] given if waiters are to be notified
--
-- 1 settled, now or by an earlier call   0 not the token's
local value = redis.call('GET', KEYS[1])
local tail = '1' .. string.char(#ARGV[1]) .. ARGV[1]
if not value or string.sub(value, 2, #tail + 1) ~= tail then
  return 0
end
local state = string.sub(value, 1, 1)
if state == 'S' then
  return 1
end
if state ~= 'H' then
  return 0
end
-- When memory is full, PEXPIRE is not refused, because it needs no memory, and SET is not refused,
-- because it follows a write. SET repeats the time: a PEXPIRE of 1 ms deletes the entry if this
-- millisecond is over meanwhile, and KEEPTTL would then keep the receipt for ever.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[1], 'S' .. string.sub(value, 2) .. ARGV[3], 'PX', ARGV[2])
if ARGV[4] then
  redis.pcall('PUBLISH', KEYS[1], '') -- a user without the permission to publish can still settle
end
return 1
