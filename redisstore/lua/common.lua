-- common.lua: how tasks lie in the keys of a queue.

-- Calls a variadic command in chunks that unpack can carry.
local function spread(command, key, args)
  for i = 1, #args, 4000 do call(command, key, unpack(args, i, math.min(i + 3999, #args))) end
end

-- Score of one member as a number, or nil.
local function score(key, member)
  local s = call('ZSCORE', key, member)
  return s and tonumber(s)
end

-- How much a call does at most, so that it takes a few ms: looking for all
-- spellings costs several times as much. The caller sends the rest again.
local function bounded(plain, with_priority)
  return priority and with_priority or plain
end

-- Splits a member into its name without priority, its level and its #trace.
local function split(member)
  local name, trace = member:match('^([^#]*)(.*)$')
  local base, level = name:match('^(.+):p(%d)$')
  if base then return base, tonumber(level), trace end
  return name, 0, trace
end

local LEVELS = {':p0', ':p1', ':p2', ':p3', ':p4', ':p5', ':p6', ':p7', ':p8', ':p9'}
local spelled = {} -- by member, made once a call

local function spellings(member)
  if not priority then return {member} end
  local all = spelled[member]
  if all then return all end
  local base, _, trace = split(member)
  all = {base .. trace}
  for i, level in ipairs(LEVELS) do all[i + 1] = base .. level .. trace end
  spelled[member] = all
  return all
end

-- Where a task lies in one sorted set: its score and spelling, or nil. Of
-- several spellings, which only plain ZADDs bring about, the first counts.
local function seek(key, member)
  if not priority then
    local s = score(key, member)
    return s, s and member
  end
  local all, low, first = spellings(member), nil, nil
  for i, found in ipairs(call('ZMSCORE', key, unpack(all))) do
    local s = found and tonumber(found)
    if s and (not low or s < low) then low, first = s, all[i] end
  end
  return low, first
end

-- A due time as a whole number that fits an answer, whatever a plain ZADD made
-- it.
local function shown(due) return math.max(0, math.min(ceil(due), MAX_DUE)) end

-- Due time in force of a task, or -1.
local function due_in_force(member)
  local due = seek(SCHEDULED, member) or seek(NEXT, member)
  return due and shown(due) or -1
end

-- Where members lie in one sorted set: member → score, member → spelling.
local function lookup(key, members)
  local scores, names = {}, {}
  if priority then
    for _, member in ipairs(members) do scores[member], names[member] = seek(key, member) end
  elseif #members > 0 then
    for i, found in ipairs(call('ZMSCORE', key, unpack(members))) do
      if found then scores[members[i]], names[members[i]] = tonumber(found), members[i] end
    end
  end
  return scores, names
end

-- Takes side data away from a member that lies nowhere any more.
local function forget(member)
  call('HDEL', BODY, member)
  call('HDEL', TRIES, member)
  call('HDEL', ERROR, member)
end

local function forget_failures(member)
  call('HDEL', TRIES, member)
  call('HDEL', ERROR, member)
end

-- Takes side data away from those spellings of a task that lie nowhere.
local function tidy(member)
  if call('EXISTS', BODY, TRIES, ERROR) == 0 then return end
  local all = spellings(member)
  local somewhere = {}
  for _, key in ipairs({SCHEDULED, NEXT, ACTIVE, DEAD}) do
    for i, s in ipairs(call('ZMSCORE', key, unpack(all))) do somewhere[i] = somewhere[i] or s end
  end
  for i, m in ipairs(all) do
    if not somewhere[i] then forget(m) end
  end
end

-- Removes a task from one sorted set, in every spelling.
local function remove(key, member) call('ZREM', key, unpack(spellings(member))) end

-- Takes the dead letter of a task away, with its failures and error.
local function drop_dead(member)
  local all = spellings(member)
  for i, died in ipairs(call('ZMSCORE', DEAD, unpack(all))) do
    if died then
      call('ZREM', DEAD, all[i])
      forget_failures(all[i])
    end
  end
  tidy(member)
end

-- Makes a member a dead letter, the only one of its task.
local function to_dead(member)
  if priority and seek(DEAD, member) ~= score(DEAD, member) then
    local failures, text = call('HGET', TRIES, member), call('HGET', ERROR, member)
    drop_dead(member)
    if failures then call('HSET', TRIES, member, failures) end
    if text then call('HSET', ERROR, member, text) end
  end
  call('ZADD', DEAD, now, member)
end

