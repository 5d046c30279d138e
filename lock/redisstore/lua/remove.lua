-- Removes the entry of a token. One with a fence leaves a stub behind, so that
-- fences grow even if the server's clock is set back.
--
-- ARGV[1] token   ARGV[2] the states that may be removed, "H" or "HS"
-- ARGV[3] how long a stub is kept, in ms   ARGV[4] the stub after its fence
-- ARGV[5] given if those who wait are to hear of it
--
-- 1 removed   0 not the token's, or in another state
local value = redis.call('GET', KEYS[1])
local tail = '1' .. string.char(#ARGV[1]) .. ARGV[1]
if not value or string.sub(value, 2, #tail + 1) ~= tail
  or not string.find(ARGV[2], string.sub(value, 1, 1), 1, true) then
  return 0
end
local fence = string.sub(value, #tail + 15, #tail + 30)
-- DEL comes first because it is never refused for want of memory, and the SET
-- passes because it follows a write.
redis.call('DEL', KEYS[1])
if fence ~= '0000000000000000' then
  redis.call('SET', KEYS[1], 'F1\0' .. '0000000000000' .. fence .. ARGV[4], 'PX', ARGV[3])
end
if ARGV[5] then
  redis.pcall('PUBLISH', KEYS[1], '') -- a user who may not do that can still release
end
return 1
