-- Puts another receipt in the place of a token's receipt.
--
-- ARGV[1] how the entry begins if the token has settled it
-- ARGV[2] the receipt to replace   ARGV[3] the new one
--
-- 1 replaced, now or by an earlier call   0 not the token's, or another receipt
local value = redis.call('GET', KEYS[1])
local head = ARGV[1]
if not value or string.sub(value, 1, #head) ~= head then
  return 0
end
local at = #head + 30 -- behind linger and fence
local function number()
  local n, unit = 0, 1
  while true do
    local byte = string.byte(value, at)
    at = at + 1
    n = n + byte % 128 * unit
    if byte < 128 then
      return n
    end
    unit = unit * 128
  end
end
number() -- the attempt
for _ = 1, 3 do -- fingerprint, owner and key
  local length = number()
  at = at + length
end
local receipt = string.sub(value, at)
if receipt == ARGV[3] then
  return 1
end
if receipt ~= ARGV[2] then
  return 0
end
redis.call('SET', KEYS[1], string.sub(value, 1, at - 1) .. ARGV[3], 'KEEPTTL')
return 1
