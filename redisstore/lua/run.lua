-- run.lua: how the runs of active members end, for claim and settle.

local policy -- retry settings, read when first needed

local function retry_policy()
  if policy then return policy end
  local s = call('HMGET', SETTINGS, 'retries', 'retry_first_ms', 'retry_factor', 'retry_cap_ms', 'retry_jitter_percent')
  policy = {
    retries = number_or(s[1], 3), first = number_or(s[2], 5000), factor = number_or(s[3], 2),
    cap = number_or(s[4], 3600000), jitter = number_or(s[5], 10) / 100,
  }
  math.randomseed(clock % 2147483647)
  return policy
end

-- Due time after so many failures: growing, capped, and jittered later only.
local function retry_due(failures)
  local p = retry_policy()
  local delay = p.first * p.factor ^ (failures - 1)
  if not (delay < p.cap) then delay = p.cap end
  return after(ceil(delay * (1 + p.jitter * math.random()) * 1000))
end

-- Failures and rounds of a tries entry, and whether it marks a cancelled run.
local function parse_tries(text)
  if not text then return 0, 0, false end
  if text == '-' then return 0, 0, true end
  local failures, rounds = text:match('^(%d+)/?(%d*)$')
  return tonumber(failures) or 0, tonumber(rounds) or 0, false
end

local function format_tries(failures, rounds)
  if rounds == 0 then return string.format('%d', failures) end
  return string.format('%d/%d', failures, rounds)
end

local function keep_tries(member, failures, rounds)
  if failures == 0 and rounds == 0 then
    call('HDEL', TRIES, member)
  else
    call('HSET', TRIES, member, format_tries(failures, rounds))
  end
end

-- Ends the run of a member that was scheduled again or cancelled meanwhile,
-- whatever the verdict. Returns false if it was neither, otherwise true and
-- the due time of what waited for its end, if anything did.
local function superseded(member, cancelled)
  local waiting, spelling = seek(NEXT, member)
  local again = seek(SCHEDULED, member)
  if not (waiting or again or cancelled) then return false end
  if waiting then
    if not again then call('ZADD', SCHEDULED, waiting, spelling) end
    remove(NEXT, member)
  end
  call('ZREM', ACTIVE, member)
  for _, m in ipairs(spellings(member)) do forget_failures(m) end
  tidy(member)
  return true, not again and waiting
end

local function keep_error(member, reason)
  if reason == '' then call('HDEL', ERROR, member) else call('HSET', ERROR, member, reason) end
end

-- Makes a member a dead letter. Its place before is the caller's to clear.
local function bury(member, failures, rounds, reason)
  to_dead(member)
  keep_tries(member, failures, rounds)
  keep_error(member, reason)
end

-- Puts a member back after one more failure, at due or by policy. Returns its
-- due time, or nil if its retries are used up and it is a dead letter now.
local function fail(member, failures, rounds, reason, due)
  failures = failures + 1
  if failures > retry_policy().retries then
    bury(member, failures, rounds, reason)
    return nil
  end
  due = due or retry_due(failures)
  keep_tries(member, failures, rounds)
  keep_error(member, reason)
  call('ZADD', SCHEDULED, due, member)
  return due
end
