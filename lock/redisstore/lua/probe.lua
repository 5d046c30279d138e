-- Tries the commands that the scripts use. Returns the ones that fail, each followed by its error.
--
-- ARGV[1] "publish" if the scripts publish
local failed = {}
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    failed[#failed + 1] = (...)
    failed[#failed + 1] = reply.err
  end
end
try('TIME')
try('SET', KEYS[1], '', 'PX', 1000)
try('GET', KEYS[1])
try('PTTL', KEYS[1])
try('PEXPIRE', KEYS[1], 1000)
try('DEL', KEYS[1])
if ARGV[1] == 'publish' then
  try('PUBLISH', KEYS[1], '')
end
return failed
