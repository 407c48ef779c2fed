-- Unique keys, and the arguments of waiting jobs.

-- name: hold_unique_keys
update {schema}.unique_key set id = :id, unique_scope = :unique_scope, until_at = :until_at, replaced_by = :replaced_by
where task = :task and unique_key = :unique_key;

-- name: drop_unique_keys
delete from {schema}.unique_key where task = :task and unique_key = :unique_key and id = :id;

-- name: unique_among
-- The unique keys of some jobs.
select job.id::text as id, lane.task, job.unique_key, job.unique_scope
from {schema}.job as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
where job.seq = any(array(select unnest(:seqs::bigint[]))) and job.unique_key is not null;

-- part: holder_columns
given.task, given.unique_key, taken.id::text as id, taken.unique_scope, taken.until_at, taken.replaced_by::text as replaced_by,
       case
           when job.seq is null then null
           when running.seq is not null then 'running'
           when completed.seq is not null or failed.seq is not null or cancelled.seq is not null then 'ended'
           else 'waiting'
       end as stage,
       case when own.seq is not null then given.id::text end as known, {now} as now;

-- part: holder_rows
left join lateral (
    select * from {schema}.unique_key where task = given.task and unique_key = given.unique_key limit 1
) as taken on true
left join lateral (select seq from {schema}.job where id = given.id limit 1) as own on true
left join lateral (select seq from {schema}.job where id = taken.id limit 1) as job on true
left join lateral (select seq from {schema}.running where seq = job.seq limit 1) as running on true
left join lateral (select seq from {schema}.completed where seq = job.seq limit 1) as completed on true
left join lateral (select seq from {schema}.failed where seq = job.seq limit 1) as failed on true
left join lateral (select seq from {schema}.cancelled where seq = job.seq limit 1) as cancelled on true;

-- part: waiting_columns
job.id::text as id, job.seq, job.lane_id, lane.queue, lane.task, job.order_key, job.limit_key,
       case
           when ready.seq is not null then 'ready'
           when scheduled.seq is not null then 'scheduled'
           when blocked.seq is not null then 'blocked'
       end as state,
       job.priority, job.max_attempts, job.turn,
       coalesce(ready.attempt, scheduled.attempt, blocked.attempt, 0) as attempt,
       coalesce(ready.excused, scheduled.excused, blocked.excused, 0) as excused,
       coalesce(ready.interrupted, scheduled.interrupted, blocked.interrupted, 0) as interrupted,
       coalesce(ready.lost, scheduled.lost, blocked.lost, 0) as lost,
       coalesce(ready.followed, scheduled.followed, false) as followed,
       coalesce(scheduled.retrying, false) as retrying, false as isolated, false as cancel_asked,
       null::text as cancel_reason, 0::bigint as fence, null::text as worker_id, null::bigint as started_at,
       null::bigint as lease_span, null::bigint as finished_at, null::text as reason, 0::bigint as held, {now} as token;

-- name: lock_waiting
-- One job, if it is waiting: otherwise its state is null. It never waits for the transaction of a handler, which has
-- locked a row in running.
select {waiting_columns}
from {schema}.job as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
left join lateral (
    select * from {schema}.ready where lane_id = job.lane_id and turn = job.turn and seq = job.seq for update
) as ready on true
left join lateral (
    select * from {schema}.scheduled
    where run_at = job.turn + job.priority::bigint * {priority_step} and seq = job.seq for update
) as scheduled on true
left join lateral (select * from {schema}.blocked where seq = job.seq for update) as blocked on true
where job.id = :id::uuid;
