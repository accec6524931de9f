#!lua
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local at = string.format('%.0f', now)
if now > tonumber(ARGV[3]) then return {-2, at} end
local kind = redis.call('TYPE', KEYS[1])
kind = kind.ok or kind
if kind ~= 'none' and kind ~= 'string' then return {-3, kind, redis.call('PTTL', KEYS[1]), at} end
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] then return {0, found, redis.call('PTTL', KEYS[1]), at} end
local last = tonumber(redis.call('GET', KEYS[2]) or '')
if found and last then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
  return {2, string.format('%.0f', last), at}
end
local fence = string.format('%.0f', math.max((last or 0) + 1, now))
redis.call('SET', KEYS[2], fence, 'PX', ARGV[4])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {found and 2 or 1, fence, at}
