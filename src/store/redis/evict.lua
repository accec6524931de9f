#!lua flags=allow-oom
local t = redis.call('TIME')
local at = string.format('%.0f', t[1] * 1000000 + t[2])
local kind = redis.call('TYPE', KEYS[1])
kind = kind.ok or kind
if kind ~= 'none' and kind ~= 'string' then return {-3, kind, redis.call('PTTL', KEYS[1]), at} end
local found = redis.call('GET', KEYS[1])
if not found then return {-1, at} end
local left = redis.call('PTTL', KEYS[1])
if found ~= ARGV[1] then return {0, found, left, at} end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  if left < 0 then left = tonumber(ARGV[3]) end
  left = string.format('%.0f', math.max(left, 1))
  redis.call('PEXPIRE', KEYS[1], left)
  redis.call('SET', KEYS[1], ARGV[2], 'PX', left)
end
local last = tonumber(redis.call('GET', KEYS[2]) or '') or 0
redis.call('SET', KEYS[2], string.format('%.0f', last + 1), 'PX', ARGV[4])
return {1, at}
