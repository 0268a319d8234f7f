#!lua flags=allow-oom
-- claim.lua: do all that time made due in one queue, and lease due tasks.
-- ARGV  1 deadline ms (0 none)  2 channel  3 queue  4 max  5 lease us (0: setting)
-- Returns 0, clock, then: the leases, or -1 if at most once; when there is more,
--   ms (-1 never); the last claim before, ms (0 never); 1 if paused; members and
--   dues with spaces between; their tries, or false; their bodies, or false
-- Returns 2, clock, lease_max ms if the lease is not 1 s to lease_max

-- include core
-- include common
-- include member
-- include run

if late(ARGV[1]) then return {LATE, clock} end
local channel, queue, max = ARGV[2], ARGV[3], tonumber(ARGV[4])
local to = KEYS[10] -- forward.lua: where due tasks go, as if claimed at most once

local s = call('HMGET', SETTINGS, 'delivery', 'max_late_ms', 'dead_keep_ms', 'paused', 'lease_ms', 'lease_max_ms')
local once, paused = to or s[1] == 'at_most_once', s[4] == '1'
local max_late, dead_keep = number_or(s[2], 0), number_or(s[3], 604800000)
local lease, lease_max = tonumber(ARGV[5]), number_or(s[6], 86400000)
if lease == 0 then lease = number_or(s[5], 30000) * 1000 end
if not to and (lease < 1000000 or lease > lease_max * 1000) then return {2, clock, lease_max} end

local STAT_NAMES = {'grace', 'number', to and 'forwarded' or 'claimed', 'ended', 'refused', 'trimmed'}
local st = call('HMGET', STATS, 'last', unpack(STAT_NAMES))
local last, grace = number_or(st[1], nil), number_or(st[2], 0)
local number, claimed = number_or(st[3], now_us), number_or(st[4], 0)
local ended, refused, trimmed = number_or(st[5], 0), number_or(st[6], 0), number_or(st[7], 0)
local body_count, tries_count, error_count, nexts, deads = beside()

local function first_lease()
  local first = call('ZRANGE', ACTIVE, 0, 0, 'WITHSCORES')[2]
  return first and tonumber(first)
end

local first = first_lease()
local before, returned -- the head of K, and the earliest due that went back to it

local function back(due)
  if due and (not returned or due < returned) then returned = due end
end

-- 1. Leases that ended. After a gap without claims the holders may live on and
-- first get the chance to renew.
if grace > now + 5000 then grace = now + 5000 end
local ended_by = -1
if not last or now - last > 2000 then
  ended_by = math.min(now_s, floor(grace / 1000))
  grace = now + 5000
elseif now >= grace then
  ended_by = now_s
end
ended_by = ended_by * 1000000 + 999999
local ending = first and first <= ended_by
if ending or nexts + deads > 0 then before = head() end
if ending then
  local over = call('ZRANGE', ACTIVE, '-inf', ended_by, 'BYSCORE', 'LIMIT', 0, 200)
  local tries = call('HMGET', TRIES, unpack(over))
  local again, waiting = lookup(SCHEDULED, over), lookup(NEXT, over)
  local kept, errors, adds, freed = {}, {}, {}, {}
  for i, member in ipairs(over) do
    local failures, rounds, cancelled = parse_tries(tries[i])
    if again[member] or waiting[member] or cancelled then
      local _, waited = superseded(member, cancelled)
      back(waited)
    elseif failures >= retry_policy().retries then
      bury(member, failures + 1, rounds, 'lease ended')
      freed[#freed + 1] = member
    else
      local due = failures == 0 and now or retry_due(failures + 1)
      kept[#kept + 1], kept[#kept + 2] = member, format_tries(failures + 1, rounds)
      errors[#errors + 1], errors[#errors + 2] = member, 'lease ended'
      adds[#adds + 1], adds[#adds + 2] = due, member
      freed[#freed + 1] = member
      back(due)
    end
  end
  if #adds > 0 then
    spread('HSET', TRIES, kept)
    spread('HSET', ERROR, errors)
    spread('ZADD', SCHEDULED, adds)
  end
  if #freed > 0 then spread('ZREM', ACTIVE, freed) end
  first = first_lease()
  ended, deads, tries_count, error_count = ended + #over, call('ZCARD', DEAD), 1, 1
end

-- 2. What waited behind a run that is gone.
if nexts > 0 then
  local waiting = call('ZRANGE', NEXT, 0, 99, 'WITHSCORES')
  for i = 1, #waiting, 2 do
    if not seek(ACTIVE, waiting[i]) then
      call('ZADD', SCHEDULED, 'NX', waiting[i + 1], waiting[i])
      call('ZREM', NEXT, waiting[i])
      back(tonumber(waiting[i + 1]))
    end
  end
end

-- 3. Dead letters past their keeping time.
if deads > 0 then
  local old = call('ZRANGE', DEAD, '-inf', now - dead_keep, 'BYSCORE', 'LIMIT', 0, 100)
  for _, member in ipairs(old) do
    call('ZREM', DEAD, member)
    if score(SCHEDULED, member) or score(NEXT, member) then forget_failures(member) else forget(member) end
  end
  trimmed, deads = trimmed + #old, deads - #old
end

-- 4. Due tasks. found: member, due, …; the first `ranked` of them are the head
-- of K in its order.
local found, ranked = {}, 0

local function by_level(entries)
  local levels, order = {}, {}
  for i = 1, #entries, 2 do
    local member, due = entries[i], tonumber(entries[i + 1])
    local _, level = split(member)
    if ceil(due) < MIN_DUE or due > MAX_DUE or malformed(member) then level = 10 end
    levels[level] = levels[level] or {}
    table.insert(levels[level], i)
  end
  for level = 10, 0, -1 do
    for _, i in ipairs(levels[level] or {}) do
      if #order >= 2 * max then return order end
      order[#order + 1], order[#order + 2] = entries[i], entries[i + 1]
    end
  end
  return order
end

if not paused then
  if priority then
    found = by_level(call('ZRANGE', SCHEDULED, '-inf', now, 'BYSCORE', 'LIMIT', 0, 1000, 'WITHSCORES'))
  else
    found = call('ZRANGE', SCHEDULED, '-inf', now, 'BYSCORE', 'LIMIT', 0, max, 'WITHSCORES')
    ranked = #found / 2
  end
  local room = max - #found / 2
  if room > 0 then
    local tail = call('ZRANGE', SCHEDULED, '+inf', '(253402300799999', 'BYSCORE', 'REV', 'LIMIT', 0, room, 'WITHSCORES')
    for i = 1, #tail do found[#found + 1] = tail[i] end
  end
end

local function why_untimely(text)
  local due = ceil(tonumber(text))
  if due < MIN_DUE or due > MAX_DUE then
    return 'score ' .. text .. ' is no time in ms from 1973 to 9999'
  end
  if max_late > 0 and now - due > max_late then
    return string.format('%.0f ms late, max_late is %.0f ms', now - due, max_late)
  end
end

-- Sort out what is not taken. taken: member, due, …
local taken, members, reasons, filtered = found, {}, nil, false
-- The head of K is the earliest: if that is neither bad nor too late, none is.
local timely = ranked * 2 == #found and (ranked == 0 or not why_untimely(found[2]))
for i = 1, #found / 2 do
  local member = found[2 * i - 1]
  members[i] = member
  local reason = (#member > 512 or not find(member, KIND)) and malformed(member) or not timely and why_untimely(found[2 * i])
  if reason then
    reasons = reasons or {}
    reasons[member] = reason
  end
end

local active -- members that have a run in progress
if #members > 0 and (priority or once or reasons) then
  active, filtered = lookup(ACTIVE, members), true
  local chosen = {}
  for _, member in ipairs(priority and not once and members or {}) do -- one spelling of each
    local base, _, trace = split(member)
    local name = base .. trace
    active[member] = active[member] or chosen[name]
    chosen[name] = chosen[name] or not (reasons and reasons[member])
  end
end

-- One claim carries at most 1 MiB of bodies, and at least one task. Sizes are
-- asked for first: to read a hundred large bodies takes a second.
local bodies = false
local processed = #members
if body_count > 0 then
  local size = 0
  for i, member in ipairs(members) do
    if not (reasons and reasons[member] or active and active[member]) then
      local length = call('HSTRLEN', BODY, member)
      size = size + length
      if size > 1048576 and size > length then
        processed = i - 1
        break
      end
    end
  end
end
if processed < #members then
  for i = #members, processed + 1, -1 do
    members[i], found[2 * i], found[2 * i - 1] = nil, nil, nil
  end
  if ranked > processed then ranked = processed end
end

-- Leases, and returns how many were not active. Redis keeps a small set as a
-- list, in which it looks for each one from the front; one that begins with a
-- long member is a skip list from the start.
local LONG = string.rep(' ', 65)
local score_of_lease

local function lease_all(adds)
  if not first then call('ZADD', ACTIVE, 0, LONG) end
  local added = call('ZADD', ACTIVE, 'NX', unpack(adds))
  if not first then call('ZREM', ACTIVE, LONG) end
  if added > 0 and (not first or score_of_lease < first) then first = score_of_lease end
  return added
end

-- Lease what is free. ZADD NX tells in its count whether anybody was active.
if #members > 0 and not once then
  number = (number + 1) % 1000000
  score_of_lease = ceil((clock + lease) / 1000000) * 1000000 + number
  local lease_text, adds, n = string.format('%.0f', score_of_lease), {}, 0
  for i = 1, #members do
    local member = members[i]
    if not filtered or not (reasons and reasons[member] or active[member]) then
      n = n + 1
      adds[2 * n - 1], adds[2 * n] = lease_text, member
    end
  end
  if n > 0 and lease_all(adds) < n then
    active, filtered = active or {}, true
    for i, held in ipairs(call('ZMSCORE', ACTIVE, unpack(members))) do
      if held and tonumber(held) ~= score_of_lease then active[members[i]] = true end
    end
  end
end

if filtered then
  taken = {}
  for i, member in ipairs(members) do
    local due = found[2 * i]
    if active and active[member] then
      call('ZADD', NEXT, due, member)
    elseif reasons and reasons[member] then
      to_dead(member)
      call('HSET', ERROR, member, reasons[member])
      refused, deads = refused + 1, deads + 1
    else
      if priority and deads > 0 then drop_dead(member) end -- in turn: the next may be buried
      taken[#taken + 1], taken[#taken + 2] = member, due
    end
  end
end

local names = members
if filtered then
  names = {}
  for i = 1, #taken, 2 do names[#names + 1] = taken[i] end
end

-- A dead letter of a task that a plain ZADD brought back goes.
if deads > 0 and #names > 0 and not priority then
  for member in pairs(lookup(DEAD, names)) do drop_dead(member) end
end

local tries = false
if tries_count > 0 and #names > 0 then tries = call('HMGET', TRIES, unpack(names)) end
if body_count > 0 and #names > 0 then bodies = call('HMGET', BODY, unpack(names)) end
if to and #names > 0 then send(taken, bodies) end

-- Remove exactly what was handled. Nothing was written to K since it was read.
if ranked > 0 then call('ZREMRANGEBYRANK', SCHEDULED, 0, ranked - 1) end
if ranked < #members then
  local rest = {}
  for i = ranked + 1, #members do rest[#rest + 1] = members[i] end
  spread('ZREM', SCHEDULED, rest)
end
if once and #names > 0 then
  if bodies then spread('HDEL', BODY, names) end
  if tries then spread('HDEL', TRIES, names) end
  if error_count > 0 then spread('HDEL', ERROR, names) end
end

if priority and reasons and body_count + tries_count > 0 then -- the letter may be of another spelling
  for member in pairs(reasons) do tidy(member) end
end

claimed = claimed + #names
local stats = {'last', now}
for i, value in ipairs({grace, number, claimed, ended, refused, trimmed}) do
  if value ~= tonumber(st[i + 1] or 0) then stats[#stats + 1], stats[#stats + 2] = STAT_NAMES[i], value end
end
call('HSET', STATS, unpack(stats))

-- When there is more to do.
local more = -1
local due = head()
if due and not paused then
  more = ceil(due) > MAX_DUE and now or shown(due)
end
if first then
  local ends = (first - fmod(first, 1000000)) / 1000
  if ends < grace then ends = grace end
  if more < 0 or ends < more then more = ends end
end
if max == 0 and due and due <= now and not paused then
  hint(channel, queue, nil, due) -- who has no room calls for others
elseif returned then
  hint(channel, queue, before, due)
end
if to then return {0, clock, #names, more, last or 0, paused and 1 or 0} end
return {0, clock, once and -1 or score_of_lease or 0, more, last or 0, paused and 1 or 0, table.concat(taken, ' '), tries, bodies}
