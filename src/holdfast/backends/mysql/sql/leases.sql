-- Leases and the workers that hold them.

-- name: lock_extendable
-- Rows that a handler's transaction has locked are skipped: such a lease is not lost. The caller compares the pairs.
select running.seq, running.fence
from {given_seqs}
straight_join holdfast_running as running force index (primary) on running.seq = given.seq
where running.fence in (:fences) for update skip locked;

-- name: extend_many
-- Of seqs that the same transaction has locked under their fences.
update {given_seqs}
straight_join holdfast_running as running force index (primary) on running.seq = given.seq
set running.lease_until = greatest(running.lease_until, {now} + :span), running.lease_span = :span;

-- name: seen_leases
select seq, fence, cancel_asked from holdfast_running where seq in (:seqs);

-- name: lock_batch
-- For a transaction over many jobs. The caller sorts the leases, so that two such calls cannot deadlock, and compares
-- the pairs.
select running.seq, running.fence
from {given_seqs}
straight_join holdfast_running as running force index (primary) on running.seq = given.seq
where running.fence in (:fences) and :milliseconds > 0 for update;

-- name: lock_lease
-- For a handler's transaction: until its end, no rescue can take the lease.
select seq from holdfast_running where seq = :seq and fence = :fence and :milliseconds > 0 for update;
