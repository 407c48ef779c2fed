-- Pruning and queues.

-- name: next_due
select greatest(0, run_at - {now}) as wait from {schema}.scheduled order by run_at, seq limit 1;

-- name: old_failed
-- `(select {now})` is one constant instant, which an index scan can use as its bound; a volatile clock cannot.
select seq from {schema}.failed where finished_at <= (select {now}) - :keep order by finished_at limit :limit;

-- name: old_cancelled
select seq from {schema}.cancelled where finished_at <= (select {now}) - :keep order by finished_at limit :limit;

-- name: prune_completed
delete from {schema}.completed where seq = any(array(select unnest(:seqs::bigint[])));

-- name: prune_failed
delete from {schema}.failed where seq = any(array(select unnest(:seqs::bigint[])));

-- name: prune_cancelled
delete from {schema}.cancelled where seq = any(array(select unnest(:seqs::bigint[])));

-- name: prune_attempts
delete from {schema}.attempt where seq = any(array(select unnest(:seqs::bigint[])));

-- name: prune_jobs
delete from {schema}.job where seq = any(array(select unnest(:seqs::bigint[])));

-- name: prune_workers
delete from {schema}.worker where heartbeat_at < {now} - :keep;

-- name: lock_completed
select seq from {schema}.completed
where seq = any(array(select unnest(:seqs::bigint[]))) and finished_at <= {now} - :keep
order by seq for update;

-- name: lock_failed
select seq from {schema}.failed
where seq = any(array(select unnest(:seqs::bigint[]))) and finished_at <= {now} - :keep
order by seq for update;

-- name: lock_cancelled
select seq from {schema}.cancelled
where seq = any(array(select unnest(:seqs::bigint[]))) and finished_at <= {now} - :keep
order by seq for update;

-- name: pause
insert into {schema}.queue as known (queue, paused) values (:queue, true)
on conflict (queue) do update set paused = true where not known.paused;

-- name: resume
update {schema}.queue set paused = false where queue = :queue and paused;
