#!lua
-- settings.lua: change settings of one queue and raise their version.
-- ARGV  1 deadline ms (0 none), then field, value, … ('' takes a field away)
-- Returns 0, clock, then all fields and values

if late(ARGV[1]) then return {LATE, clock} end
for i = 2, #ARGV, 2 do
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
