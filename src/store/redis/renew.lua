#!lua flags=allow-oom
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local at = string.format('%.0f', now)
if now > tonumber(ARGV[3]) then return {-2, at} end
local kind = redis.call('TYPE', KEYS[1])
kind = kind.ok or kind
if kind ~= 'none' and kind ~= 'string' then return {-3, kind, redis.call('PTTL', KEYS[1]), at} end
local found = redis.call('GET', KEYS[1])
if found == ARGV[1] then
  local left = redis.call('PTTL', KEYS[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.pcall('PEXPIRE', KEYS[2], ARGV[5])
  return {1, left, at}
end
if found then return {0, found, redis.call('PTTL', KEYS[1]), at} end
if ARGV[6] == '1' and ARGV[4] ~= '' then
  local last = redis.call('GET', KEYS[2])
  if not last or last == ARGV[4] then
    redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return {2, at}
  end
end
return {-1, at}
