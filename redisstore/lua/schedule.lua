#!lua
-- schedule.lua: put tasks into one queue, in order.
-- ARGV  1 deadline ms (0 none)  2 channel  3 queue
--   4 a or r if all replace and have neither body nor priority; then per task:
--       when (+us or ms), member. a: all are ms, within bounds, and the
--       earliest is 5
--     otherwise per task: when, member, if exists (r k e l, upper case when a
--       body follows), body
--   5 the earliest, or nothing
-- Returns 0, clock, replicas to wait for, a code per task, for the first tasks
-- if they are too many for one call; then for each 3 and 6 a number:
--   1 scheduled  2 replaced  3 kept, due in force  4 running  5 no priorities
--   here  6 body too large, the limit  7 due out of bounds

-- include core
if late(ARGV[1]) then return {LATE, clock} end

local body_count, tries_count, error_count, nexts, deads, actives = 0, 0, 0, 0, 0, 0
if call('EXISTS', BODY, TRIES, ERROR, NEXT, DEAD, ACTIVE) > 0 then
  body_count, tries_count, error_count = side_data()
  nexts, deads, actives = call('ZCARD', NEXT), call('ZCARD', DEAD), call('ZCARD', ACTIVE)
end
local before = head()
call('HEXISTS', STATS, 'scheduled')

local function finish(applied, earliest, reply)
  call('HINCRBY', STATS, 'scheduled', applied)
  hint(ARGV[2], ARGV[3], before, earliest)
  return reply
end

local FIRST, MOST = 6, 500 -- tasks of a call

-- Scores and members as ZADD takes them, and the earliest due time. Nil if one
-- is out of bounds.
local function schedules()
  local last = math.min(#ARGV, FIRST + 2 * MOST - 1)
  if ARGV[4] == 'a' then return {unpack(ARGV, FIRST, last)}, tonumber(ARGV[5]) end
  local adds, earliest, format, part = {}, MAX_DUE, string.format, now_us % 1000
  for i = FIRST, last, 2 do
    local text, n = ARGV[i], i - FIRST
    local due = tonumber(text)
    if text:byte() == 43 then
      local rest = fmod(due, 1000)
      due = now + (due - rest) / 1000 + ceil((part + rest) / 1000)
      text = format('%d', due)
    end
    if due < MIN_DUE or due > MAX_DUE then return nil end
    if due < earliest then earliest = due end
    adds[n + 1], adds[n + 2] = text, ARGV[i + 1]
  end
  return adds, earliest
end

-- The codes of tasks that were put into K, of which so many are new there.
local function codes_of(members, added, waiting, later, running)
  local codes, seen = {}, {}
  for j, member in ipairs(members) do
    local had = waiting[j] or later and later[j]
    codes[j] = running and running[j] and 4 or had and 2 or 1
    if waiting[j] then added = added + 1 end
  end
  if added == #members then return codes end
  for j, member in ipairs(members) do -- some are there twice: the later ones replace
    if seen[member] and codes[j] == 1 then codes[j] = 2 end
    seen[member] = true
  end
  return codes
end

-- What failed runs left beside tasks goes, but for those that run now.
local function forget_runs(members, running)
  local idle = {}
  for j, member in ipairs(members) do
    if not (running and running[j]) then
      idle[#idle + 1] = member
    elseif call('HGET', TRIES, member) == '-' then
      call('HDEL', TRIES, member)
    end
  end
  if #idle > 0 then
    call('HDEL', TRIES, unpack(idle))
    call('HDEL', ERROR, unpack(idle))
  end
end

-- The usual case: tasks that replace, without bodies and priorities.
local function replace_all(adds, earliest)
  local members, n = {}, #adds / 2
  for j = 1, n do members[j] = adds[2 * j] end
  local waiting = call('ZMSCORE', SCHEDULED, unpack(members))
  local later = nexts > 0 and call('ZMSCORE', NEXT, unpack(members))
  local running = actives > 0 and call('ZMSCORE', ACTIVE, unpack(members))

  local added = call('ZADD', SCHEDULED, unpack(adds))
  if body_count > 0 then call('HDEL', BODY, unpack(members)) end
  if nexts > 0 then call('ZREM', NEXT, unpack(members)) end
  if deads > 0 then call('ZREM', DEAD, unpack(members)) end
  if tries_count + error_count > 0 then forget_runs(members, running) end

  local codes
  if added == n and not running and not later then
    codes = string.rep('1', n)
  else
    codes = table.concat(codes_of(members, added, waiting, later, running))
  end
  return finish(n, earliest, {0, clock, replicas, codes})
end

local plain = ARGV[4] ~= ''
if plain and not priority then
  local adds, earliest = schedules()
  if adds then return replace_all(adds, earliest) end
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
