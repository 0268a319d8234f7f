-- info.lua: what get and list tell of one task.

-- Appends to reply: member, due in K, due in next, lease, died, tries, error,
-- body, 1 if its run is the last. What there is not is false. A listed member
-- is told of as it lies there, and of its body only whether there is one, as 1.
-- Returns the bytes of the body.
local function describe(reply, member, listed)
  local due, a = seek(SCHEDULED, member)
  local waiting, b = seek(NEXT, member)
  local lease, c = seek(ACTIVE, member)
  local died, d = seek(DEAD, member)
  local spelling = listed and member or c or a or b or d or member
  local n = #reply
  reply[n + 1] = spelling
  reply[n + 2] = due and call('ZSCORE', SCHEDULED, a) or false
  reply[n + 3] = waiting and call('ZSCORE', NEXT, b) or false
  reply[n + 4] = lease or false
  reply[n + 5] = died and call('ZSCORE', DEAD, d) or false
  reply[n + 6] = call('HGET', TRIES, spelling)
  reply[n + 7] = call('HGET', ERROR, spelling)
  local body
  if listed then
    body = call('HEXISTS', BODY, a or b or c or d) == 1 and '1'
  else
    body = call('HGET', BODY, a or b or spelling)
  end
  reply[n + 8] = body
  reply[n + 9] = c and call('HGET', TRIES, c) == '-' and 1 or 0
  return body and #body or 0
end
