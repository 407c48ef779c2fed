-- Leases and the workers that hold them. Every statement that writes under a lease carries its fence, except
-- `extend_many`, which is run on jobs that `held` has returned.

-- name: held
-- Which of the jobs [seq, …] are held, and under which fences: two arrays. (Pairs read with ->> cost twice as much.)
select json_group_array(seq), json_group_array(fence)
from json_each(:seqs) cross join holdfast_running on seq = value;

-- name: extend_many
update holdfast_running set lease_until = max(lease_until, :now + :span), lease_span = :span
where seq in (select value from json_each(:seqs));

-- name: cancel_asked_among
select json_group_array(seq) from holdfast_running
where cancel_asked = 1 and seq in (select value from json_each(:seqs));

-- name: lock_batch
-- For a transaction over many jobs. May also return a pair of the seq of one lease and the fence of another: the caller
-- compares the pairs.
select seq, fence from json_each(:seqs) cross join holdfast_running on seq = value
where fence in (select value from json_each(:fences));

-- name: lock_lease
-- For a handler's transaction, which holds the write lock: from here on the lease cannot be taken away.
select seq from holdfast_running where seq = :seq and fence = :fence;

-- name: cancel_asked
-- `= 1` as in the condition of the index.
select job.id as job_id, running.seq, running.fence
from holdfast_running as running cross join holdfast_job as job on job.seq = running.seq
where running.worker_id = :worker_id and running.cancel_asked = 1;
