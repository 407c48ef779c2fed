-- Pruning, workers, queues and the schema's own state.

-- name: old_completed
select seq from holdfast_completed where finished_at <= :before order by finished_at limit :limit;

-- name: old_failed
select seq from holdfast_failed where finished_at <= :before order by finished_at limit :limit;

-- name: old_cancelled
select seq from holdfast_cancelled where finished_at <= :before order by finished_at limit :limit;

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
delete from holdfast_count where minute_at < :before;

-- name: prune_workers
delete from holdfast_worker where beat_at < :before;

-- name: beat
insert into holdfast_worker (worker_id, beat, started_at, beat_at) values (:worker_id, :beat, :now, :now)
on conflict (worker_id) do update set beat = excluded.beat, beat_at = excluded.beat_at;

-- name: forget_worker
delete from holdfast_worker where worker_id = :worker_id;

-- name: pause
insert into holdfast_queue (queue, paused) values (:queue, 1)
on conflict (queue) do update set paused = 1 where paused = 0;

-- name: resume
update holdfast_queue set paused = 0 where queue = :queue and paused = 1;

-- name: schema_table
select 1 from sqlite_schema where type = 'table' and name = 'holdfast_meta';

-- name: schema_version
select schema_version from holdfast_meta where only_row = 1;

-- name: set_schema_version
update holdfast_meta set schema_version = :version where only_row = 1;
