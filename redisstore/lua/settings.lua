#!lua
-- settings.lua: change settings of one queue, as they were when the caller
-- checked the change against them, and raise their version.
-- ARGV  1 deadline ms (0 none)  2 their version then, 0 if never changed, then
--   field, value, … ('' takes a field away)
-- Returns 0, clock, then all fields and values; 2, clock if they have changed

-- include core

if late(ARGV[1]) then return {LATE, clock} end
if number_or(call('HGET', SETTINGS, 'version'), 0) ~= tonumber(ARGV[2]) then return {2, clock} end
for i = 3, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    call('HDEL', SETTINGS, ARGV[i])
  else
    call('HSET', SETTINGS, ARGV[i], ARGV[i + 1])
  end
end
call('HINCRBY', SETTINGS, 'version', 1)
local reply = {0, clock}
for _, text in ipairs(call('HGETALL', SETTINGS)) do reply[#reply + 1] = text end
return reply
