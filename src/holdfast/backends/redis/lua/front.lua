-- Returns ready jobs by turn, then seq, each its member, turn and lane: the first ARGV[3] of the lanes in ARGV[4], 4
-- bytes each, together; and from ARGV[5] on, pairs, so many of each lane.
local answer, sets = {}, {}

local function add(member, turn, lane)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = member, turn, lane
end

for i = 1, #ARGV[4], 4 do sets[#sets + 1] = 'r' .. int(number_at(ARGV[4], i)) end
for _, place in ipairs(first_of(sets, tonumber(ARGV[3]))) do add(place[3], int(place[1]), sub(place[4], 2)) end
for i = 5, #ARGV, 2 do
  local found = call('ZRANGE', P .. 'r' .. ARGV[i], 0, tonumber(ARGV[i + 1]) - 1, 'WITHSCORES')
  for k = 1, #found, 2 do add(found[k], found[k + 1], ARGV[i]) end
end
return answer
