-- Runs reading commands in one step, each as the number of its words and the words; the second is a key without prefix.
local replies, i = {int(now)}, 3
while i <= #ARGV do
  local words = {unpack(ARGV, i + 1, i + tonumber(ARGV[i]))}
  words[2] = P .. words[2]
  replies[#replies + 1] = call(unpack(words))
  i = i + 1 + tonumber(ARGV[i])
end
return replies
