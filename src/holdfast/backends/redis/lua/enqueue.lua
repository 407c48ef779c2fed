-- Enqueues the jobs in ARGV[3] and after.
local jobs = {}
for i = 3, #ARGV do jobs[i - 2] = ARGV[i] end
local answers = insert(jobs, now)
wake()
return answers
