#!lua
-- schedule.lua: put tasks into one queue, in order.
-- ARGV  1 deadline ms (0 none)  2 channel  3 queue
--   4 a, r or m if all replace and have neither body nor priority; then per
--       task: when (+us or ms), member. a: all are ms, within bounds, and the
--       earliest is 5. r: all are +us, of at most a hundred years
--     otherwise per task: when, member, if exists (r k e l, upper case when a
--       body follows), body
--   5 the earliest, or nothing
-- Returns 0, clock, replicas to wait for, a code per task, for the first tasks
-- if they are too many for one call; then for each 3 and 6 a number:
--   1 scheduled  2 replaced  3 kept, due in force  4 running  5 no priorities
--   here  6 body too large, the limit  7 due out of bounds

-- include core
if late(ARGV[1]) then return {LATE, clock} end

local body_count, tries_count, error_count, nexts, deads = beside()
local actives = call('ZCARD', ACTIVE)
local before = head()
call('HEXISTS', STATS, 'scheduled')

local function finish(applied, earliest, reply)
  call('HINCRBY', STATS, 'scheduled', applied)
  hint(ARGV[2], ARGV[3], before, earliest)
  return reply
end

local FIRST, MOST = 6, 500 -- tasks of a call
local plain = ARGV[4] ~= ''

-- The usual case: tasks that replace, without bodies and priorities, all by
-- instants or all by delays whose sums with the clock stay below 2^53 us.
if not priority and (ARGV[4] == 'a' or ARGV[4] == 'r' and clock < 2 ^ 52) then
  local last = math.min(#ARGV, FIRST + 2 * MOST - 1)
  local adds, members, n, earliest = {unpack(ARGV, FIRST, last)}, {}, (last - FIRST + 1) / 2, tonumber(ARGV[5])
  for j = 1, n do members[j] = adds[2 * j] end
  if ARGV[4] == 'r' then
    earliest = MAX_DUE
    local format, ending = string.format, clock + 999 -- a sum of us, rounded up to ms
    for j = 1, n do
      local due = (ending + adds[2 * j - 1]) / 1000
      due = due - due % 1
      if due < earliest then earliest = due end
      adds[2 * j - 1] = format('%d', due)
    end
  end
  local waiting = call('ZMSCORE', SCHEDULED, unpack(members))
  local later = nexts > 0 and call('ZMSCORE', NEXT, unpack(members))
  local running = actives > 0 and call('ZMSCORE', ACTIVE, unpack(members))

  local added = call('ZADD', SCHEDULED, unpack(adds))
  if body_count > 0 then call('HDEL', BODY, unpack(members)) end
  if nexts > 0 then call('ZREM', NEXT, unpack(members)) end
  if deads > 0 then call('ZREM', DEAD, unpack(members)) end
  if tries_count + error_count > 0 then -- what failed runs left, but for those that run now
    for j, member in ipairs(members) do
      if not (running and running[j]) then
        call('HDEL', TRIES, member)
        call('HDEL', ERROR, member)
      elseif call('HGET', TRIES, member) == '-' then
        call('HDEL', TRIES, member)
      end
    end
  end
  if added == n and not running and not later then
    return finish(n, earliest, {0, clock, replicas, string.rep('1', n)})
  end

  local codes, seen = {}, {}
  for j, member in ipairs(members) do
    codes[j] = running and running[j] and 4 or (waiting[j] or later and later[j] or seen[member]) and 2 or 1
    seen[member] = true
  end
  return finish(n, earliest, {0, clock, replicas, table.concat(codes)})
end

-- include common
local members, whens, modes, bodies = {}, {}, {}, {}
local with_body = false
local i, n = FIRST, 0
while i <= #ARGV and n < bounded(500, 50) do
  n = n + 1
  whens[n], members[n], bodies[n] = ARGV[i], ARGV[i + 1], false
  modes[n], i = 'r', i + 2
  if not plain then
    modes[n], i = ARGV[i]:lower(), i + 1
    if modes[n] ~= ARGV[i - 1] then
      bodies[n], with_body, i = ARGV[i], true, i + 1
    end
  end
end
local body_max = with_body and number_or(call('HGET', SETTINGS, 'body_max'), 65536)

-- What is known of each task, by member; changes as the items are applied.
-- due: in K or next, as = its spelling; active; body: what to write.
local tasks = {}

for j = 1, n do tasks[members[j]] = {} end
local function look(key, count, note)
  if count == 0 then return end
  local scores, spelled = lookup(key, members)
  for member, s in pairs(scores) do note(tasks[member], s, spelled[member]) end
end
local function waits(task, s, spelling) task.due, task.as, task.had = ceil(s), spelling, true end
look(NEXT, nexts, waits)
look(SCHEDULED, 1, waits)
look(ACTIVE, actives, function(task, _, spelling) task.active = spelling end)

-- On a priority queue two spellings in one call are one task.
if priority then
  local by_name = {}
  for j = 1, n do
    local base, _, trace = split(members[j])
    local name = base .. trace
    by_name[name] = by_name[name] or tasks[members[j]]
    tasks[members[j]] = by_name[name]
  end
end

local function refuse(j, due)
  if not priority and members[j]:find(':p%d') and split(members[j]) ~= members[j]:match('^[^#]*') then
    return 5, 0
  end
  if bodies[j] and #bodies[j] > body_max then return 6, body_max end
  if due < MIN_DUE or due > MAX_DUE then return 7, 0 end
end

local function keeps(task, mode, due)
  if not task.due or mode == 'r' then return false end
  return mode == 'k' or (mode == 'e' and due >= task.due) or (mode == 'l' and due <= task.due)
end

local codes, numbers = {}, {}
local applied, order = 0, {}
for j = 1, n do
  local task = tasks[members[j]]
  local due = due_of(whens[j])
  local code, in_force = refuse(j, due)
  if not code and keeps(task, modes[j], due) then code, in_force = 3, shown(task.due) end
  if not code then
    code, in_force = (task.active and 4) or (task.due and 2) or 1, due
    if not task.write then order[#order + 1] = task end
    task.due, task.as, task.body, task.write = due, members[j], bodies[j], true
    applied = applied + 1
  end
  codes[j] = code
  if code == 3 or code == 6 then numbers[#numbers + 1] = in_force end
end
local reply = {0, clock, replicas, table.concat(codes), unpack(numbers)}
if applied == 0 then return reply end

-- Write: bodies first, then the schedule, then what it replaces.
local adds, names, sets, gone, earliest = {}, {}, {}, {}, nil
for j, task in ipairs(order) do
  names[j] = task.as
  adds[2 * j - 1], adds[2 * j] = task.due, task.as
  if task.body then
    sets[#sets + 1], sets[#sets + 2] = task.as, task.body
  else
    gone[#gone + 1] = task.as
  end
  if not earliest or task.due < earliest then earliest = task.due end
end
if #sets > 0 then spread('HSET', BODY, sets) end
spread('ZADD', SCHEDULED, adds)
if body_count > 0 and #gone > 0 then spread('HDEL', BODY, gone) end
if nexts > 0 then spread('ZREM', NEXT, names) end
if deads > 0 then spread('ZREM', DEAD, names) end

-- Takes away what lies under other spellings of a task, but for its run.
local function drop_others(task)
  local others, idle = {}, {}
  for _, m in ipairs(spellings(task.as)) do
    if m ~= task.as then others[#others + 1] = m end
    if m ~= task.as and m ~= task.active then idle[#idle + 1] = m end
  end
  for _, key in ipairs({SCHEDULED, NEXT, DEAD}) do call('ZREM', key, unpack(others)) end
  call('HDEL', BODY, unpack(others))
  call('HDEL', TRIES, unpack(idle))
  call('HDEL', ERROR, unpack(idle))
end

for _, task in ipairs(order) do
  if priority and (task.had or deads + body_count + tries_count + error_count > 0) then drop_others(task) end
  if tries_count + error_count > 0 then
    if task.active ~= task.as then forget_failures(task.as) end
    if task.active and call('HGET', TRIES, task.active) == '-' then call('HDEL', TRIES, task.active) end
  end
end
return finish(applied, earliest, reply)
