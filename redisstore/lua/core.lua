-- core.lua: what every script starts with.
--
-- KEYS of every script: 1 scheduled zset  2 active zset  3 next zset
--   4 dead zset  5 body  6 tries  7 error  8 settings  9 stats
-- Replies begin with 0, or 1 when the script came too late and did nothing,
-- and the server's clock in us.
-- Units: due, died, grace in ms; delays in us; lease = end in s * 1e6 + number.

local SCHEDULED, ACTIVE, NEXT, DEAD, BODY, TRIES, ERROR, SETTINGS, STATS = unpack(KEYS)
local call, floor, ceil, fmod = redis.call, math.floor, math.ceil, math.fmod

local MIN_DUE, MAX_DUE = 100000000000, 253402300799999
local LATE = 1

local time = call('TIME')
local now_s, now_us = tonumber(time[1]), tonumber(time[2])
local now = now_s * 1000 + floor(now_us / 1000)
local clock = now_s * 1000000 + now_us

-- Due time of a delay in us, never early by a fraction of a ms. Split so that
-- no sum passes 2^53.
local function after(delay)
  local rest = fmod(delay, 1000)
  return now + (delay - rest) / 1000 + ceil((now_us % 1000 + rest) / 1000)
end

-- Reads a time argument: '+us' is a delay, a bare number an instant in ms.
local function due_of(text)
  if text:byte() == 43 then return after(tonumber(text)) end
  return tonumber(text)
end

-- Reads a setting or a counter; one that somebody wrote and that is no number
-- counts as not set.
local function number_or(text, default) return text and tonumber(text) or default end

local function late(deadline)
  return deadline ~= '0' and now > tonumber(deadline)
end

local function head()
  local first = call('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2])
end

-- Tells sleepers of a new head. The last thing a script does; who may not
-- publish still has the scan.
local function hint(channel, queue, before, due)
  if due and (not before or due < before) then
    redis.pcall('PUBLISH', channel, string.format('%.0f %s', ceil(due), queue))
  end
end

local of_queue = call('HMGET', SETTINGS, 'priority', 'wait_replicas')

-- Priority queues: every spelling of id:kind names the same task.
local priority = of_queue[1] == '1'

-- How many replicas the caller is to wait for.
local replicas = number_or(of_queue[2], 0)

-- How many bodies, tries, errors, and members in next and dead there are. Fails
-- here, before the first write, if a key holds another type.
local function beside()
  if call('EXISTS', BODY, TRIES, ERROR, NEXT, DEAD) == 0 then return 0, 0, 0, 0, 0 end
  return call('HLEN', BODY), call('HLEN', TRIES), call('HLEN', ERROR), call('ZCARD', NEXT), call('ZCARD', DEAD)
end
