-- Unique keys. A key is decided on only by a transaction that has locked its row; the next statement has a newer
-- snapshot, and sees the jobs of all transactions that the lock has waited for.

-- name: add_missing_keys
-- Waits for a transaction that has added one of them; if that commits, this fails as a duplicate, and the verb is repeated.
insert into holdfast_unique_key (task, unique_key, id, unique_scope, until_at)
select given.task, given.unique_key, given.id, given.unique_scope, {now} + given.period
from (
    select * from json_table(:claims, '$[*]' columns (
        task varchar(128) character set utf8mb4 path '$.task', unique_key varchar(128) character set utf8mb4 path '$.unique_key', id varchar(36) character set utf8mb4 path '$.id',
        unique_scope varchar(16) character set utf8mb4 path '$.unique_scope', period bigint path '$.period'
    )) as listed
) as given
left join holdfast_unique_key as known on known.task = given.task and known.unique_key = given.unique_key
left join holdfast_job as job on job.id = given.id
where known.task is null and (:again or job.seq is null);

-- name: lock_unique_keys
-- Those that existed. The caller sorts them, so that two such calls cannot deadlock.
select 1 as locked
from (
    select * from json_table(:claims, '$[*]' columns (
        task varchar(128) character set utf8mb4 path '$.task', unique_key varchar(128) character set utf8mb4 path '$.unique_key'
    )) as listed
) as given
straight_join holdfast_unique_key as held force index (primary)
    on held.task = given.task and held.unique_key = given.unique_key
for update;

-- name: unique_holders
-- For each claim its key, the stage of the job that took it last, and whether the claim's own id is known.
select given.task, given.unique_key, taken.id, taken.unique_scope, taken.until_at, taken.replaced_by,
       case
           when job.seq is null then null
           when running.seq is not null then 'running'
           when completed.seq is not null or failed.seq is not null or cancelled.seq is not null then 'ended'
           else 'waiting'
       end as stage,
       case when own.seq is not null then given.id end as known, {now} as now
from (
    select * from json_table(:claims, '$[*]' columns (
        task varchar(128) character set utf8mb4 path '$.task', unique_key varchar(128) character set utf8mb4 path '$.unique_key', id varchar(36) character set utf8mb4 path '$.id'
    )) as listed
) as given
left join holdfast_unique_key as taken on taken.task = given.task and taken.unique_key = given.unique_key
left join holdfast_job as own on own.id = given.id
left join holdfast_job as job on job.id = taken.id
left join holdfast_running as running on running.seq = job.seq
left join holdfast_completed as completed on completed.seq = job.seq
left join holdfast_failed as failed on failed.seq = job.seq
left join holdfast_cancelled as cancelled on cancelled.seq = job.seq;

-- name: lock_waiting
-- One job, if it is waiting: otherwise its state is null. It never waits for the transaction of a handler, which has
-- locked a row in running.
select job.id, job.seq, job.lane_id, lane.queue, lane.task, job.order_key, job.limit_key,
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
       coalesce(ready.followed, scheduled.followed, 0) as followed,
       coalesce(scheduled.retrying, 0) as retrying, 0 as isolated, 0 as cancel_asked,
       null as cancel_reason, 0 as fence, null as worker_id, null as started_at,
       null as lease_span, null as finished_at, null as reason, 0 as held, {now} as token
from holdfast_job as job
straight_join holdfast_lane as lane on lane.lane_id = job.lane_id
{waiting_rows}
where job.id = :id;

-- name: set_arguments
update holdfast_job set payload = :payload, payload_bytes = octet_length(:payload), turn = :turn where seq = :seq;

-- name: drop_keys_of_pruned
-- Skips a key that another transaction has locked, which may be that of a slow handler: such a row says of a job that
-- does not exist that it took the key, so the key is free, and the next job with it overwrites the row.
delete gone from (
    select task, unique_key from holdfast_unique_key
    where task = :task and unique_key = :unique_key and id = :id and until_at is null limit 1 for update skip locked
) as given
straight_join holdfast_unique_key as gone force index (primary)
    on gone.task = given.task and gone.unique_key = given.unique_key;

-- name: prune_unique_keys
delete gone from (
    select task, unique_key from holdfast_unique_key force index (by_end)
    where until_at <= {now} order by until_at limit :limit for update skip locked
) as given
straight_join holdfast_unique_key as gone force index (primary)
    on gone.task = given.task and gone.unique_key = given.unique_key;
