local function before(one, other)
  if one[1] ~= other[1] then return one[1] < other[1] end
  return one[2] < other[2]
end

-- The first jobs of these sets together, by score, then seq, at most `limit`: each its score, seq, member and set. Of
-- each set a few are read, then more of those sets that still had an earlier one: as many jobs may have one score.
local function first_of(sets, limit)
  local places, size, open = {}, math.ceil(limit / #sets) + 1, {}
  for i, set in ipairs(sets) do open[i] = {set = set, read = 0} end
  while #open > 0 do
    for _, each in ipairs(open) do
      local found = call('ZRANGE', P .. each.set, each.read, each.read + size - 1, 'WITHSCORES')
      for k = 1, #found, 2 do places[#places + 1] = {tonumber(found[k + 1]), seq_of(found[k]), found[k], each.set} end
      each.read = each.read + size
      each.last = #found == 2 * size and places[#places]
    end
    table.sort(places, before)
    for i = #places, limit + 1, -1 do places[i] = nil end
    local more, bound = {}, places[limit]
    for _, each in ipairs(open) do
      if each.last and not (bound and not before(each.last, bound)) then more[#more + 1] = each end
    end
    open, size = more, size * 2
  end
  return places
end
