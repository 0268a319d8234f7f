#!lua flags=no-writes
-- stats.lua: counts of one queue.
-- ARGV  names of totals
-- Returns 0, clock, scheduled, overdue, active, dead, due of the head or false,
--   first end of a lease s or -1, paused, last claim ms or false, then totals

-- include core

local waiting = call('ZCARD', NEXT)
local first = call('ZRANGE', ACTIVE, 0, 0, 'WITHSCORES')[2]
local reply = {
  0, clock,
  call('ZCARD', SCHEDULED) + waiting,
  call('ZCOUNT', SCHEDULED, '-inf', now) + call('ZCOUNT', NEXT, '-inf', now),
  call('ZCARD', ACTIVE), call('ZCARD', DEAD),
  call('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')[2] or false,
  first and floor(tonumber(first) / 1000000) or -1,
  call('HGET', SETTINGS, 'paused') == '1' and 1 or 0,
  call('HGET', STATS, 'last'),
}
for i, total in ipairs(call('HMGET', STATS, unpack(ARGV))) do reply[10 + i] = number_or(total, 0) end
return reply
