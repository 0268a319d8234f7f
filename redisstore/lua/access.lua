#!lua flags=no-writes
-- access.lua: which commands this user may not run on the keys of a queue.
-- KEYS  as every script has them; none is touched
-- ARGV  names of commands
-- Returns those that are denied.

local function allowed(command, key)
  if command:find('^eval') then return redis.acl_check_cmd(command, '', '1', key) end
  if command == 'zintercard' then return redis.acl_check_cmd(command, '1', key) end
  return redis.acl_check_cmd(command, key)
end

local denied = {}
for _, command in ipairs(ARGV) do
  for _, key in ipairs(KEYS) do
    if not allowed(command, key) then
      denied[#denied + 1] = command
      break
    end
  end
end
return denied
