#!lua flags=allow-oom
-- settle.lua: end one delivery of each task, if the caller still holds it.
-- ARGV  1 channel  2 queue
--   3 k if all are acks of leased tasks; then by claim: the lease, how many
--       tasks, their members in order with spaces between
--     otherwise per task: member, verdict and number ('k7'; upper case when it
--       was claimed at most once), and by verdict
--     k ack      –
--     r retry    delay (+us, or p by policy), error
--     a again    delay (+us); at most once: rounds, 1 if a body follows, body
--     l release  when (+us, or due ms); at most once: as again
--     d dead     error
-- Returns 0, clock, a letter per task, for the first tasks if they are too many
-- for one call, then the due time in force for each letter that is small:
--   A lease lost  B done  C superseded

-- include core

local codes, dues, left = {}, {}, {} -- left: tasks that take the long way
local body_count, tries_count, error_count, nexts = beside()

-- The usual case: acks of tasks that have nothing beside them.
if ARGV[3] == 'k' then
  local i, n, most = 4, 0, priority and 50 or tries_count + nexts > 0 and 200 or 500
  while i <= #ARGV and n < most do
    local lease, size, text = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
    i = i + 3
    -- Who is active with this lease: all of them, if not far more than asked for.
    local limit, members = 8 * size, {}
    local holders = call('ZRANGE', ACTIVE, lease, lease, 'BYSCORE', 'LIMIT', 0, limit)
    local all = #holders == size and n + size <= most and table.concat(holders, ' ') == text
    if all then
      members = holders
    else
      for member in text:gmatch('[^ ]+') do
        if n + #members < most then members[#members + 1] = member end
      end
    end
    n = n + #members
    local again = call('ZCARD', ACTIVE) > 4 * #members or call('ZINTERCARD', 2, ACTIVE, SCHEDULED, 'LIMIT', 1) > 0
    again = again and call('ZMSCORE', SCHEDULED, unpack(members))
    local waiting = nexts > 0 and call('ZMSCORE', NEXT, unpack(members))
    local tries = tries_count > 0 and call('HMGET', TRIES, unpack(members))
    local gone = members
    if all and not (priority or again or waiting or tries) then
      codes[#codes + 1] = string.rep('B', size)
    else
      local held = {}
      gone = {}
      for _, member in ipairs(holders) do held[member] = true end
      for j, member in ipairs(members) do
        if held[member] and not (priority or again and again[j] or waiting and waiting[j] or tries and tries[j]) then
          held[member] = false -- for the same once more
          gone[#gone + 1] = member
          codes[#codes + 1] = 'B'
        else
          codes[#codes + 1] = ''
          left[#left + 1] = {place = #codes, member = member, verdict = 'k', number = fmod(tonumber(lease), 1000000)}
        end
      end
    end
    if #gone > 0 then
      call('HINCRBY', STATS, 'acked', #gone)
      if #gone == #holders and #gone < limit then
        call('ZREMRANGEBYSCORE', ACTIVE, lease, lease)
      else
        call('ZREM', ACTIVE, unpack(gone))
      end
      if body_count > 0 then call('HDEL', BODY, unpack(gone)) end
      if error_count > 0 then call('HDEL', ERROR, unpack(gone)) end
    end
  end
  if #left == 0 then return {0, clock, table.concat(codes)} end
end

call('HEXISTS', STATS, 'acked') -- fails if it is something else
local before, earliest, totals = head(), nil, {}

-- include common
-- include run

local function count(total) totals[total] = (totals[total] or 0) + 1 end

local function back(due)
  if due and (not earliest or due < earliest) then earliest = due end
end

-- Reads the arguments of one task from place i. Returns it and the next place.
local function read(i)
  local verdict = ARGV[i + 1]:sub(1, 1)
  local task = {place = #left + 1, member = ARGV[i], verdict = verdict:lower(), number = tonumber(ARGV[i + 1]:sub(2))}
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

if ARGV[3] ~= 'k' then
  local i = 4
  while i <= #ARGV and #left < bounded(200, 50) do left[#left + 1], i = read(i) end
end
for _, task in ipairs(left) do
  local code = settle(task) -- 0 lease lost, 1 done, 2 superseded
  local due = code > 0 and due_in_force(task.member) or -1
  codes[task.place] = string.char(code + (due < 0 and 65 or 97))
  if due >= 0 then dues[#dues + 1] = due end
end
for total, n in pairs(totals) do call('HINCRBY', STATS, total, n) end
hint(ARGV[1], ARGV[2], before, earliest)
return {0, clock, table.concat(codes), unpack(dues)}
