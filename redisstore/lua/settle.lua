#!lua flags=allow-oom
-- settle.lua: end one delivery of each task, if the caller still holds it.
-- ARGV  1 channel  2 queue, then per task: member, verdict and number ('k7';
--   upper case when it was claimed at most once), and by verdict
--     k ack      –
--     r retry    delay (+us, or p by policy), error
--     a again    delay (+us); at most once: rounds, 1 if a body follows, body
--     l release  when (+us, or due ms); at most once: as again
--     d dead     error
-- Returns 0, clock, then per task a code and its due time in force or -1, for
-- the first tasks if they are too many for one call:
--   0 lease lost  1 done  2 superseded

local reply, totals = {0, clock}, {}
local before, earliest = head(), nil
local body_count, tries_count, error_count = side_data()
local nexts = call('ZCARD', NEXT)
call('ZCARD', DEAD) -- fails here if it is no zset
call('HEXISTS', STATS, 'acked')

local function count(total) totals[total] = (totals[total] or 0) + 1 end

local function back(due)
  if due and (not earliest or due < earliest) then earliest = due end
end

-- Reads the arguments of one task from place i. Returns it and the next place.
local function read(i)
  local verdict = ARGV[i + 1]:sub(1, 1)
  local task = {member = ARGV[i], verdict = verdict:lower(), number = tonumber(ARGV[i + 1]:sub(2))}
  task.once = verdict ~= task.verdict
  i = i + 2
  if task.verdict == 'r' then
    task.delay, task.error, i = ARGV[i], ARGV[i + 1], i + 2
  elseif task.verdict == 'd' then
    task.error, i = ARGV[i], i + 1
  elseif task.verdict ~= 'k' then
    task.delay, i = ARGV[i], i + 1
    if task.once then
      task.rounds, task.body, i = tonumber(ARGV[i]), ARGV[i + 1] == '1' and ARGV[i + 2], i + 2
      if task.body then i = i + 1 end
    end
  end
  return task, i
end

-- A task claimed at most once lies nowhere; only again and release bring it
-- back, unless it is somewhere by now.
local function settle_once(task)
  local member = task.member
  if task.verdict == 'k' then count('acked') return 1 end
  if task.verdict == 'r' then count('retried') return 1 end
  if task.verdict == 'd' then count('died') return 1 end
  if seek(SCHEDULED, member) or seek(NEXT, member) or seek(ACTIVE, member) or seek(DEAD, member) then
    count('superseded')
    return 2
  end
  local due = due_of(task.delay)
  forget(member) -- what a plain ZREM left
  if task.body then call('HSET', BODY, member, task.body) end
  keep_tries(member, 0, task.rounds)
  call('ZADD', SCHEDULED, due, member)
  back(due)
  count(task.verdict == 'a' and 'again' or 'released')
  return 1
end

local verdicts = {}

function verdicts.k(task)
  call('ZREM', ACTIVE, task.member)
  forget(task.member)
  return 'acked'
end

function verdicts.r(task, failures, rounds)
  local due
  if task.delay ~= 'p' then due = due_of(task.delay) end
  due = fail(task.member, failures, rounds, task.error, due)
  call('ZREM', ACTIVE, task.member)
  back(due)
  return due and 'retried' or 'died'
end

function verdicts.a(task, _, rounds)
  local due = due_of(task.delay)
  keep_tries(task.member, 0, rounds + 1)
  call('HDEL', ERROR, task.member)
  call('ZADD', SCHEDULED, due, task.member)
  call('ZREM', ACTIVE, task.member)
  back(due)
  return 'again'
end

function verdicts.l(task)
  local due = due_of(task.delay)
  call('ZADD', SCHEDULED, due, task.member)
  call('ZREM', ACTIVE, task.member)
  back(due)
  return 'released'
end

function verdicts.d(task, failures, rounds)
  bury(task.member, failures + 1, rounds, task.error)
  call('ZREM', ACTIVE, task.member)
  return 'died'
end

local function settle(task)
  if task.once then return settle_once(task) end
  local lease = score(ACTIVE, task.member)
  if not lease or fmod(lease, 1000000) ~= task.number then return 0 end
  local failures, rounds, cancelled = parse_tries(call('HGET', TRIES, task.member))
  local done, waited = superseded(task.member, cancelled)
  if done then
    back(waited)
    count('superseded')
    return 2
  end
  count(verdicts[task.verdict](task, failures, rounds))
  return 1
end

-- The usual case: plain acks of tasks that have nothing beside them.
local function all_acks()
  if priority or body_count + tries_count + error_count + nexts > 0 then return false end
  for i = 4, #ARGV, 2 do
    if ARGV[i]:byte() ~= 107 then return false end
  end
  return true
end

local function ack_all()
  local members, place = {}, {}
  for i = 3, #ARGV, 2 do
    local member = ARGV[i]
    reply[#reply + 1], reply[#reply + 2] = 0, -1
    if not place[member] then members[#members + 1] = member end
    place[member] = place[member] or {}
    table.insert(place[member], #reply - 1)
  end
  local gone = {}
  local again = call('ZMSCORE', SCHEDULED, unpack(members))
  for i, lease in ipairs(call('ZMSCORE', ACTIVE, unpack(members))) do
    for _, at in ipairs(lease and place[members[i]] or {}) do
      if fmod(tonumber(lease), 1000000) == tonumber(ARGV[at + 1]:sub(2)) then
        reply[at] = again[i] and 2 or 1
        reply[at + 1] = again[i] and shown(tonumber(again[i])) or -1
        gone[#gone + 1] = members[i]
        count(again[i] and 'superseded' or 'acked')
        break
      end
    end
  end
  if #gone > 0 then spread('ZREM', ACTIVE, gone) end
end

if all_acks() then
  ack_all()
else
  local i = 3
  while i <= #ARGV and #reply < 2 + 2 * bounded(200, 50) do
    local task
    task, i = read(i)
    local code = settle(task)
    reply[#reply + 1], reply[#reply + 2] = code, code > 0 and due_in_force(task.member) or -1
  end
end
for total, n in pairs(totals) do call('HINCRBY', STATS, total, n) end
hint(ARGV[1], ARGV[2], before, earliest)
return reply
