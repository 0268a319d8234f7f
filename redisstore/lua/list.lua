#!lua flags=no-writes
-- list.lua: a page, or the first part of one too long for one call, of the
-- tasks in one state, ordered by score and member.
-- ARGV  1 scheduled, active or dead  2 limit  3 1 for those due by now only
--   4 score and 5 member of the last one seen, or ''
-- Returns 0, clock, score and member of the last one if there may be more or
--   '' and '', then per task what describe says, without its body

-- include core
-- include common
-- include info

local limit, overdue = math.min(tonumber(ARGV[2]), bounded(300, 100)), ARGV[3] == '1'

-- Order of members as Redis has it: by bytes, whatever the locale.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = a:byte(i), b:byte(i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Rank of the first entry after the cursor.
local function start(key)
  if ARGV[4] == '' then return 0 end
  local low = call('ZCOUNT', key, '-inf', '(' .. ARGV[4])
  local high = low + call('ZCOUNT', key, ARGV[4], ARGV[4])
  while low < high do
    local middle = floor((low + high) / 2)
    local member = call('ZRANGE', key, middle, middle)[1]
    if before(ARGV[5], member) then high = middle else low = middle + 1 end
  end
  return low
end

local function page(key)
  local from = start(key)
  return call('ZRANGE', key, from, from + limit, 'WITHSCORES'), from
end

-- Merges two pages, which are in order, into one.
local function merge(a, b)
  if #b == 0 then return a end
  local out, i, j = {}, 1, 1
  while i < #a or j < #b do
    local x, y = tonumber(a[i + 1]), tonumber(b[j + 1])
    if not y or (x and (x < y or (x == y and before(a[i], b[j])))) then
      out[#out + 1], out[#out + 2], i = a[i], a[i + 1], i + 2
    else
      out[#out + 1], out[#out + 2], j = b[j], b[j + 1], j + 2
    end
  end
  return out
end

-- What waits behind its own run and is scheduled once more is listed once.
local function waiting()
  local out = {}
  local entries, from = page(NEXT)
  while #entries > 0 and #out <= 2 * limit do
    for i = 1, #entries, 2 do
      if not score(SCHEDULED, entries[i]) then out[#out + 1], out[#out + 2] = entries[i], entries[i + 1] end
    end
    from = from + #entries / 2
    entries = call('ZRANGE', NEXT, from, from + limit, 'WITHSCORES')
  end
  return out
end

local entries
if ARGV[1] == 'active' then
  entries = page(ACTIVE)
elseif ARGV[1] == 'dead' then
  entries = page(DEAD)
else
  entries = merge((page(SCHEDULED)), waiting())
end

local reply = {0, clock, '', ''}
for i = 1, #entries, 2 do
  if overdue and tonumber(entries[i + 1]) > now then break end
  if i > 2 * limit then
    reply[3], reply[4] = entries[i - 1], entries[i - 2]
    break
  end
  describe(reply, entries[i], true)
end
return reply
