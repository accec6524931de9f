#!lua flags=allow-oom
local t = redis.call('TIME')
local at = string.format('%.0f', t[1] * 1000000 + t[2])
local kind = redis.call('TYPE', KEYS[1])
kind = kind.ok or kind
if kind ~= 'none' and kind ~= 'string' then return {-3, kind, redis.call('PTTL', KEYS[1]), at} end
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] then
  if ARGV[3] ~= '' and found == ARGV[3] then return {1, at} end
  return {0, found, redis.call('PTTL', KEYS[1]), at}
end
local last = redis.call('GET', KEYS[2])
if found and tonumber(ARGV[2]) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
elseif found then
  redis.call('DEL', KEYS[1])
elseif ARGV[4] == '' or (last and last ~= ARGV[4]) then
  return {-1, at}
end
local fence = math.max(tonumber(last or '') or 0, tonumber(ARGV[4]) or 0) + 1
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[5])
return {found and 1 or -1, at}
