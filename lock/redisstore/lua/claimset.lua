-- Takes all entries, or none if one of them is in the way. An entry of the new value's token is
-- left as it is, since an earlier send has taken it. The last fence of a released entry is kept,
-- as by a claim of one key.
--
-- ARGV[1] how long the entries are kept, in ms      ARGV[2...] the new value of each entry
--
-- {1} all are taken
-- {0, i, value, pttl} the entry i is in the way, and nothing was changed
local new = {}
for i, name in ipairs(KEYS) do
  local want = ARGV[i + 1]
  local head = string.sub(want, 1, 3 + string.byte(want, 3))
  local value = redis.call('GET', name)
  if not value then
    new[i] = want
  elseif string.sub(value, 1, 3) == 'F1\0' then
    new[i] = string.sub(want, 1, #head + 13) .. string.sub(value, 17, 32) .. string.sub(want, #head + 30)
  elseif string.sub(value, 1, #head) ~= head then
    return {0, i, value, redis.call('PTTL', name)}
  end
end
for i, name in ipairs(KEYS) do
  if new[i] then
    redis.call('SET', name, new[i], 'PX', ARGV[1])
  end
end
return {1}
