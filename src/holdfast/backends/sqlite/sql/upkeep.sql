-- Pruning, queues, and the version of the schema.

-- name: next_due
select max(0, run_at - :now) as wait from holdfast_scheduled order by run_at, seq limit 1;

-- name: old_completed
select seq from holdfast_completed where finished_at <= :now - :keep order by finished_at limit :limit;

-- name: old_failed
select seq from holdfast_failed where finished_at <= :now - :keep order by finished_at limit :limit;

-- name: old_cancelled
select seq from holdfast_cancelled where finished_at <= :now - :keep order by finished_at limit :limit;

-- name: lock_completed
select seq from json_each(:seqs) as given cross join holdfast_completed as state on state.seq = given.value
where state.finished_at <= :now - :keep;

-- name: lock_failed
select seq from json_each(:seqs) as given cross join holdfast_failed as state on state.seq = given.value
where state.finished_at <= :now - :keep;

-- name: lock_cancelled
select seq from json_each(:seqs) as given cross join holdfast_cancelled as state on state.seq = given.value
where state.finished_at <= :now - :keep;

-- name: prune_completed
delete from holdfast_completed where seq in (select value from json_each(:seqs));

-- name: prune_failed
delete from holdfast_failed where seq in (select value from json_each(:seqs));

-- name: prune_cancelled
delete from holdfast_cancelled where seq in (select value from json_each(:seqs));

-- name: prune_attempts
delete from holdfast_attempt where seq in (select value from json_each(:seqs));

-- name: prune_jobs
delete from holdfast_job where seq in (select value from json_each(:seqs));

-- name: prune_counts
delete from holdfast_count where minute_at < :now - :keep;

-- name: prune_workers
delete from holdfast_worker where beat_at < :now - :keep;

-- name: pause
insert into holdfast_queue (queue, paused) values (:queue, 1)
on conflict (queue) do update set paused = 1 where paused = 0;

-- name: resume
update holdfast_queue set paused = 0 where queue = :queue and paused = 1;

-- name: has_meta_table
select exists (select 1 from sqlite_schema where type = 'table' and name = 'holdfast_meta') as found;

-- name: schema_version
select schema_version from holdfast_meta where only_row = 1;

-- name: set_schema_version
update holdfast_meta set schema_version = :version where only_row = 1;
