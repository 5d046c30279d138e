-- Removes the entry of a token. One with a fence leaves a stub behind, so that
-- fences grow even if the server's clock is set back.
--
-- ARGV[1] how the entry begins if the token holds it
-- ARGV[2] how it begins as the token's receipt, or "" if that is to stay
-- ARGV[3] how long a stub is kept, in ms   ARGV[4] the stub after its fence
-- ARGV[5] given if those who wait are to hear of it
--
-- 1 removed   0 not the token's, or in another state
local value = redis.call('GET', KEYS[1])
if not value then
  return 0
end
local head = string.sub(value, 1, #ARGV[1])
if #head < #ARGV[1] or head ~= ARGV[1] and head ~= ARGV[2] then
  return 0
end
local fence = string.sub(value, #head + 14, #head + 29)
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
