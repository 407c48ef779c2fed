-- Returns, for entries of a ledger, the ids of their jobs; '' in place of one that is gone.
local function live(entries)
  local ids = {}
  for i, entry in ipairs(entries) do ids[i] = id_of(at('>I8', '\0\0' .. sub(entry, 8), 1)) end
  local found = records(ids)
  for i, entry in ipairs(entries) do
    local record = found[i]
    if not (record and byte(record, 1) == COMPLETED and sub(record, 23, 28) == sub(entry, 8)) then ids[i] = '' end
  end
  return ids
end
