-- member.lua: the grammar of members, for those that a plain ZADD brought.

-- Characters that are no control characters or white space. They are replaced
-- byte by byte so that what stands around them cannot join.
local BLANK = {
  '\194[\128-\160]', '\225\154\128', '\226\128[\128-\138\168\169\175]', '\226\129\159', '\227\128\128',
}
local UTF8 = {
  '[\194-\223][\128-\191]',
  '\224[\160-\191][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]',
  '\237[\128-\159][\128-\191]',
  '\240[\144-\191][\128-\191][\128-\191]',
  '[\241-\243][\128-\191][\128-\191][\128-\191]',
  '\244[\128-\143][\128-\191][\128-\191]',
}

local function bad_text(member)
  if member:find('[%c ]') then return 'has white space or a control character' end
  if not member:find('[\128-\255]') then return end
  local rest = member
  for _, sequence in ipairs(UTF8) do rest = rest:gsub(sequence, '.') end
  if rest:find('[\128-\255]') then return 'is not valid UTF-8' end
  for _, sequence in ipairs(BLANK) do
    if member:find(sequence) then return 'has white space or a control character' end
  end
end

-- Most members are printable ASCII without #, begin with a letter or digit, and
-- end with no digit or have no colon: what is after the last one is a kind.
local find = string.find
local KIND, NO_KIND = '^%w[$-~]*[;-~]$', '^%w[$-9;-~]*$'

-- Why a member names no task, or nil.
local function malformed(member)
  if #member > 512 then return 'member is over 512 bytes' end
  if find(member, KIND) or find(member, NO_KIND) then return end
  local name, trace = member:match('^([^#]*)(.*)$')
  if trace:find('^#$') or trace:find('#', 2, true) then return 'trace is empty or has a #' end
  name = name:match('^(.*):p%d$') or name
  local id, kind = name:match('^(.*):([^:]*)$')
  if not id then id, kind = name, nil end
  if id == '' then return 'id is empty' end
  if id == '.' or id == '..' then return 'id is . or ..' end
  if kind == '' then return 'kind is empty after the last colon' end
  if kind and kind:find('^p%d$') then return 'kind looks like a priority' end
  local reason = bad_text(member)
  if reason then return 'member ' .. reason end
end
