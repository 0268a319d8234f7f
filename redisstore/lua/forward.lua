#!lua
-- forward.lua: do all that time made due in one queue, as claim.lua does it,
-- and move due tasks to the end of a list or stream instead of leasing them.
-- KEYS  10 the list or stream
-- ARGV  1 deadline ms (0 none)  2 channel  3 queue  4 max  5 list or stream
-- Returns 0, clock, how many tasks were moved; when there is more, ms (-1
--   never); the last claim before, ms (0 never); 1 if paused
-- Fails with DESTINATION and a type if there is something else

local is_list = ARGV[5] == 'list'

-- Checked before the first write, since an error after it repeats tasks.
if not redis.acl_check_cmd(is_list and 'RPUSH' or 'XADD', KEYS[10]) then
  return redis.error_reply('NOPERM this user may not run ' .. (is_list and 'rpush' or 'xadd'))
end
local found = redis.call('TYPE', KEYS[10]).ok
if found ~= 'none' and found ~= ARGV[5] then return redis.error_reply('DESTINATION ' .. found) end

-- Adds tasks, as member, due, …, to the end of the destination.
local function send(tasks, bodies)
  local elements = {}
  for i = 1, #tasks / 2 do
    local member, body = tasks[2 * i - 1], bodies and bodies[i]
    local due = string.format('%.0f', math.ceil(tonumber(tasks[2 * i])))
    if is_list then
      elements[i] = body and member .. '\n' .. body or member
    elseif body then
      redis.call('XADD', KEYS[10], '*', 'member', member, 'due_ms', due, 'body', body)
    else
      redis.call('XADD', KEYS[10], '*', 'member', member, 'due_ms', due)
    end
  end
  if is_list then redis.call('RPUSH', KEYS[10], unpack(elements)) end
end

-- include claim
