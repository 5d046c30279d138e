-- Removes each entry that its token holds. Like remove.lua, it leaves a stub behind for a minute
-- in the place of an entry with a fence.
--
-- ARGV[i] how the entry i begins if its token holds it
-- ARGV[#KEYS + 1] given if waiters are to be notified
--
-- {1 or 0, ...} for each entry, whether it was removed
local removed = {}
for i, name in ipairs(KEYS) do
  removed[i] = 0
  local head = ARGV[i]
  local value = redis.call('GET', name)
  if value and string.sub(value, 1, #head) == head then
    local fence = string.sub(value, #head + 14, #head + 29)
    -- DEL comes first because it is never refused for want of memory, and the SET passes
    -- because it follows a write.
    redis.call('DEL', name)
    if fence ~= '0000000000000000' then
      redis.call('SET', name, 'F1\0' .. '0000000000000' .. fence .. '\0\0\0\0', 'PX', 60000)
    end
    if ARGV[#KEYS + 1] then
      redis.pcall('PUBLISH', name, '') -- a user without the permission to publish can still release
    end
    removed[i] = 1
  end
end
return removed
