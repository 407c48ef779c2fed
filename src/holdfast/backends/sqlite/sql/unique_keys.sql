-- Unique keys, under the write lock. `claims` is a JSON list of objects.

-- name: add_free_key
insert into holdfast_unique_key (task, unique_key, id, unique_scope, until_at) values (?, ?, ?, ?, ?);

-- name: add_unique_key
-- Parameters by position: binding them by name takes 1 µs more.
insert into holdfast_unique_key (task, unique_key, id, unique_scope, until_at)
select ?1, ?2, ?3, ?4, ?5 where ?6 or not exists (select 1 from holdfast_job where id = ?3)
on conflict (task, unique_key) do nothing;

-- name: lock_unique_keys
-- The write lock is held: this only has to exist.
select 1 as locked from json_each(:claims) where false;

-- name: unique_holders
-- For each claim its key, the stage of the job that took it last, and whether the claim's own id is known.
select given.task, given.unique_key, taken.id, taken.unique_scope, taken.until_at, taken.replaced_by,
       case
           when job.seq is null then null
           when running.seq is not null then 'running'
           when completed.seq is not null or failed.seq is not null or cancelled.seq is not null then 'ended'
           else 'waiting'
       end as stage,
       case when own.seq is not null then given.id end as known, :now as now
from (
    select value ->> 'task' as task, value ->> 'unique_key' as unique_key, value ->> 'id' as id from json_each(:claims)
) as given
left join holdfast_unique_key as taken on taken.task = given.task and taken.unique_key = given.unique_key
left join holdfast_job as own on own.id = given.id
left join holdfast_job as job on job.id = taken.id
left join holdfast_running as running on running.seq = job.seq
left join holdfast_completed as completed on completed.seq = job.seq
left join holdfast_failed as failed on failed.seq = job.seq
left join holdfast_cancelled as cancelled on cancelled.seq = job.seq;

-- name: set_arguments
update holdfast_job set payload = :payload, turn = :turn where seq = :seq;

-- name: drop_keys_of_pruned
delete from holdfast_unique_key
where task = :task and unique_key = :unique_key and id = :id and until_at is null;

-- name: prune_unique_keys
delete from holdfast_unique_key where (task, unique_key) in (
    select task, unique_key from holdfast_unique_key where until_at <= :now order by until_at limit :limit
);
