-- Applies the groups in ARGV[4] and after; if ARGV[3] is 1, all or nothing; if it is ?, only the guards are checked.
-- Returns 1 or 0 for each, or '!'.
return (apply(ARGV, 3, now, ARGV[3])) or '!'
