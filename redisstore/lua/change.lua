#!lua flags=allow-oom
-- change.lua: one operation on tasks by member.
-- ARGV  1 deadline ms (0 none)  2 channel  3 queue  4 operation, then per task:
--   member, when (+us or ms), state it must have or '', due it must have or '',
--   1 if the body it must have follows, body
-- Returns 0, clock, replicas to wait for, then per task a code and its due time
-- in force or -1, for the first tasks if they are too many for one call:
--   1 done  2 kept  3 running  4 not found  5 dead  6 changed  7 due out of bounds

-- include core
-- include common

if late(ARGV[1]) then return {LATE, clock} end
local before, earliest = head(), nil
beside()
for _, key in ipairs({ACTIVE, NEXT, DEAD}) do call('ZCARD', key) end
call('HEXISTS', STATS, 'cancelled')

local DONE, KEPT, RUNNING, NOT_FOUND, IS_DEAD, CHANGED, BAD_DUE = 1, 2, 3, 4, 5, 6, 7
local totals = {}

local function count(total) totals[total] = (totals[total] or 0) + 1 end

-- Where a task lies: due in K or next and its spelling, the set that holds it,
-- and the spellings of its run and its dead letter.
local function find(member)
  local task = {}
  task.due, task.as = seek(SCHEDULED, member)
  task.set = SCHEDULED
  if not task.due then
    task.due, task.as = seek(NEXT, member)
    task.set = NEXT
  end
  local held, died
  held, task.active = seek(ACTIVE, member)
  died, task.dead = seek(DEAD, member)
  return task
end

local function differs(task, want)
  local body_of = task.as or task.active or task.dead
  if want.state == 'scheduled' and not task.due then return true end
  if want.state == 'active' and not task.active then return true end
  if want.state == 'dead' and not task.dead then return true end
  if want.due ~= '' and not (task.due and ceil(task.due) == tonumber(want.due)) then return true end
  return want.body and want.body ~= call('HGET', BODY, body_of or want.member)
end

local function unschedule(task)
  if not task.due then return end
  remove(SCHEDULED, task.as)
  remove(NEXT, task.as)
end

local function cancel(task, stop)
  if task.active then
    unschedule(task)
    if not stop then
      count('cancelled')
      call('HSET', TRIES, task.active, '-')
      call('HDEL', BODY, unpack(spellings(task.active)))
      return RUNNING
    end
    remove(ACTIVE, task.active)
    count('stopped')
    return DONE
  end
  if task.due then
    unschedule(task)
    count('cancelled')
    return DONE
  end
  return task.dead and IS_DEAD or NOT_FOUND
end

local operations = {}

function operations.cancel(task) return cancel(task, false) end
function operations.stop(task) return cancel(task, true) end

function operations.reschedule(task, due)
  if not task.due then
    return task.active and RUNNING or (task.dead and IS_DEAD or NOT_FOUND)
  end
  call('ZADD', SCHEDULED, due, task.as)
  for _, m in ipairs(spellings(task.as)) do
    if m ~= task.as then call('ZREM', SCHEDULED, m) end
  end
  remove(NEXT, task.as)
  earliest = math.min(earliest or due, due)
  return DONE
end

function operations.requeue(task, due)
  if task.active then return RUNNING end
  if task.due then
    if task.dead then drop_dead(task.dead) end
    return KEPT
  end
  local rounds = (call('HGET', TRIES, task.dead) or ''):match('/(%d+)$')
  call('ZADD', SCHEDULED, due, task.dead)
  drop_dead(task.dead)
  if rounds then call('HSET', TRIES, task.dead, '0/' .. rounds) end
  count('requeued')
  earliest = math.min(earliest or due, due)
  return DONE
end

function operations.delete(task, _, state)
  if task.active then return RUNNING end
  count('deleted')
  if state ~= 'dead' then unschedule(task) end
  if task.dead and state ~= 'scheduled' then drop_dead(task.dead) end
  return DONE
end

local reply = {0, clock, replicas}
local i = 5
while i <= #ARGV and #reply < 3 + 2 * bounded(150, 40) do
  local want = {member = ARGV[i], state = ARGV[i + 2], due = ARGV[i + 3]}
  local when = due_of(ARGV[i + 1])
  if ARGV[i + 4] == '1' then want.body, i = ARGV[i + 5], i + 1 end
  i = i + 5
  local task = find(want.member)
  local code
  if when > MAX_DUE then
    code = BAD_DUE
  elseif not (task.due or task.active or task.dead) then
    code = NOT_FOUND
  elseif differs(task, want) then
    code = CHANGED
  else
    code = operations[ARGV[4]](task, when, want.state)
    tidy(want.member)
  end
  reply[#reply + 1], reply[#reply + 2] = code, due_in_force(want.member)
end
for total, n in pairs(totals) do call('HINCRBY', STATS, total, n) end
hint(ARGV[2], ARGV[3], before, earliest)
return reply
