#!lua flags=allow-oom
-- extend.lua: move the end of leases that the caller still holds.
-- ARGV  1 deadline ms (0 none)  2 lease us from now, then per task: member, number
-- Returns 0, clock, end of the leases s, then per task: 0 lease lost  1 done
-- Returns 2, clock, lease_max ms if the lease is longer

-- include core
-- include common

if late(ARGV[1]) then return {LATE, clock} end
local lease = tonumber(ARGV[2])
local lease_max = number_or(call('HGET', SETTINGS, 'lease_max_ms'), 86400000)
if lease > lease_max * 1000 then return {2, clock, lease_max} end

local ends = ceil((clock + lease) / 1000000)
local reply, moved = {0, clock, ends}, {}
for i = 3, #ARGV, 2 do
  local held, number = score(ACTIVE, ARGV[i]), tonumber(ARGV[i + 1])
  local mine = held and fmod(held, 1000000) == number
  reply[#reply + 1] = mine and 1 or 0
  if mine then moved[#moved + 1], moved[#moved + 2] = ends * 1000000 + number, ARGV[i] end
end
if #moved > 0 then spread('ZADD', ACTIVE, moved, 'XX') end
return reply
