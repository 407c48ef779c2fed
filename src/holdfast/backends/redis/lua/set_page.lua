-- Returns members of the set ARGV[3] with their scores, at most ARGV[6]: those after the score ARGV[4] and the seq
-- ARGV[5] or, if ARGV[7] is 1, those before, the last of them. Many jobs may have one score: those of a large enqueue.
local key, score, seq, limit, down = P .. ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
-- How many members come before the place.
local low = call('ZCOUNT', key, '-inf', '(' .. score)
local high = low + call('ZCOUNT', key, score, score)
while low < high do
  local middle = math.floor((low + high) / 2)
  local found = seq_of(call('ZRANGE', key, middle, middle)[1])
  if found < seq or (found == seq and not down) then low = middle + 1 else high = middle end
end
local first, last = low, low + limit - 1
if down then first, last = math.max(0, low - limit), low - 1 end
return last < first and {} or call('ZRANGE', key, first, last, 'WITHSCORES')
