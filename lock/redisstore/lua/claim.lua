-- Takes the entry if there is none, or if it is the stub of a released one. If ARGV[3] is given,
-- takes only the entry of that token: an abandoned one, or with ARGV[5] also a held one.
--
-- The new entry keeps the key's last fence, even without a fence of its own. So fences grow even
-- if the server's clock is set back.
--
-- ARGV[1] the new value, with any fence
-- ARGV[2] how long it is kept, in ms         ARGV[3] token of the entry to replace, or ""
-- ARGV[4] "" for a claim without a fence, else the server time in µs after
--         which this command has come too late, "0" for never
-- ARGV[5] given if the entry to replace may be held
--
-- {1, now, fence} taken. The fence of a claim without one: the last fence of the key, or 0
-- {2, now} there is no entry to replace
-- {0, now, 0, value, pttl} left as it is
-- {-1, now} too late
local now = 0
if ARGV[4] ~= '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local last = 0
local value = redis.call('GET', KEYS[1])
if ARGV[3] ~= '' and (not value or string.sub(value, 1, 3) == 'F1\0') then
  return {2, now}
end
if value then
  if string.sub(value, 1, 3) == 'F1\0' then
    last = tonumber(string.sub(value, 17, 32))
  else
    local left = redis.call('PTTL', KEYS[1])
    local head = 'H1' .. string.char(#ARGV[3]) .. ARGV[3]
    local linger, found = 0, ARGV[3] ~= '' and string.sub(value, 1, #head) == head
    if found then
      linger = tonumber(string.sub(value, #head + 1, #head + 13))
      last = tonumber(string.sub(value, #head + 14, #head + 29))
    end
    local lapsed = linger > 0 and left >= 0 and left <= linger
    if not (found and (lapsed or ARGV[5])) then
      return {0, now, 0, value, left}
    end
  end
end

local fence = last
if ARGV[4] ~= '' then
  local not_after = tonumber(ARGV[4])
  if not_after > 0 and now > not_after then
    return {-1, now}
  end
  fence = math.max(last + 1, now)
end
local new, at = ARGV[1], 16 + string.byte(ARGV[1], 3)
redis.call('SET', KEYS[1], string.sub(new, 1, at) .. string.format('%016.0f', fence) .. string.sub(new, at + 17), 'PX', ARGV[2])
return {1, now, fence}
