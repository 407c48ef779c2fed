-- Limit keys: the statements for many rows, and those with locks inside.

-- name: add_limit_keys
-- Lock the keys of these jobs, and add the missing ones. The update changes no value: it keeps a key from being dropped,
-- and makes a transaction with an older snapshot fail.
insert into {schema}.limit_key as known (lane_id, limit_key)
select distinct job.lane_id, job.limit_key
from unnest(%(seqs)s::bigint[]) as given (seq)
cross join lateral (select lane_id, limit_key from {schema}.job where seq = given.seq limit 1) as job
where job.limit_key is not null
order by job.lane_id, job.limit_key
on conflict (lane_id, limit_key) do update set rate_at = known.rate_at;

-- name: add_missing_limit_keys
-- The same without locks on keys that exist.
insert into {schema}.limit_key (lane_id, limit_key)
select distinct job.lane_id, job.limit_key
from unnest(%(seqs)s::bigint[]) as given (seq)
cross join lateral (select lane_id, limit_key from {schema}.job where seq = given.seq limit 1) as job
where job.limit_key is not null
order by job.lane_id, job.limit_key
on conflict (lane_id, limit_key) do nothing;

-- part: keys_of_given
(
    select given.seq, job.lane_id, job.limit_key
    from unnest(%(seqs)s::bigint[]) as given (seq)
    cross join lateral (select lane_id, limit_key from {schema}.job where seq = given.seq limit 1) as job
    where job.limit_key is not null
    order by job.lane_id, job.limit_key
) as past;

-- name: lock_limit_keys
-- The keys of these jobs, in the order in which every transaction locks keys.
select known.key_id, past.seq
from {keys_of_given}
cross join lateral (
    select key_id from {schema}.limit_key
    where lane_id = past.lane_id and limit_key = past.limit_key limit 1
    for update
) as known;

-- name: free_limit_keys
-- The same, without keys that other sessions have locked.
select known.key_id, past.seq
from {keys_of_given}
cross join lateral (
    select key_id from {schema}.limit_key
    where lane_id = past.lane_id and limit_key = past.limit_key limit 1
    for update skip locked
) as known;

-- name: limited_keys
-- What each key allows; how many of its jobs are admitted and need no further look; how many of these are ready though
-- the rate, which was set later, has not counted them.
select known.key_id, known.rate_at, task.key_max_running as max_running, task.key_rate_jobs as rate_jobs,
       task.key_rate_span as rate_span, task.key_rate_burst as rate_burst, (
           select count(*) from {schema}.limit_slot as slot
           where slot.key_id = known.key_id and slot.admitted_at is null
             and ((select 1 from {schema}.running where seq = slot.seq limit 1) is not null
               or (select 1 from {schema}.job as job join {schema}.ready as ready
                       on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
                   where job.seq = slot.seq limit 1) is not null)
       ) as counted, case when task.key_rate_jobs is null then 0 else (
           select count(*) from {schema}.limit_slot as slot
           where slot.key_id = known.key_id and slot.admitted_at is null
             and (select 1 from {schema}.job as job join {schema}.ready as ready
                      on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
                  where job.seq = slot.seq limit 1) is not null
       ) end as unrated, {now} as now
from unnest(%(key_ids)s::bigint[]) as given (key_id)
cross join lateral (
    select key_id, lane_id, rate_at from {schema}.limit_key where key_id = given.key_id limit 1
) as known
join {schema}.lane as lane on lane.lane_id = known.lane_id
left join {schema}.task as task on task.task = lane.task;

-- name: open_slots
-- The slots whose start is not counted, and those whose job is no longer admitted; with the start after the admission.
select slot.key_id, slot.seq, slot.admitted_at, ready.seq is not null as is_ready, running.seq is not null as is_running,
       case when coalesce(running.attempt, completed.attempt, ended.attempt, 0) > slot.attempt
            then coalesce(running.started_at, completed.started_at, ended.started_at) end as started_at
from unnest(%(key_ids)s::bigint[]) as given (key_id)
cross join lateral (
    select key_id, seq, attempt, admitted_at from {schema}.limit_slot where key_id = given.key_id order by seq
) as slot
left join lateral (select seq, attempt, started_at from {schema}.running where seq = slot.seq limit 1) as running on true
left join lateral (select lane_id, turn from {schema}.job where seq = slot.seq limit 1) as job on true
left join lateral (
    select seq from {schema}.ready where lane_id = job.lane_id and turn = job.turn and seq = slot.seq limit 1
) as ready on true
left join lateral (select attempt, started_at from {schema}.completed where seq = slot.seq limit 1) as completed on true
left join lateral (
    select attempt, started_at from {schema}.attempt where seq = slot.seq order by attempt desc limit 1
) as ended on true
where slot.admitted_at is not null or (ready.seq is null and running.seq is null);

-- name: first_limited
-- The first waiting jobs of each key, as many as have room. A job that another session has locked is passed over: that
-- session may wait for the key.
select waiting.key_id, waiting.seq, job.lane_id, job.turn, job.priority, waiting.attempt, waiting.excused,
       waiting.interrupted, waiting.lost, {now} as now, true as followed, false as retrying
from unnest(%(key_ids)s::bigint[], %(rooms)s::bigint[]) as given (key_id, room)
cross join lateral (
    select key_id, seq, attempt, excused, interrupted, lost from {schema}.blocked
    where key_id = given.key_id order by place, seq limit least(given.room, %(most)s::bigint)
    for update skip locked
) as waiting
cross join lateral (select lane_id, turn, priority from {schema}.job where seq = waiting.seq limit 1) as job;

-- name: last_admitted
-- The last ready jobs of each key, as many as are over its limit.
select given.key_id, admitted.seq, admitted.lane_id, admitted.turn, admitted.attempt, admitted.excused,
       admitted.interrupted, admitted.lost, admitted.followed
from unnest(%(key_ids)s::bigint[], %(excess)s::bigint[]) as given (key_id, excess)
cross join lateral (
    select ready.seq, ready.lane_id, ready.turn, ready.attempt, ready.excused, ready.interrupted, ready.lost,
           ready.followed
    from {schema}.limit_slot as slot
    join {schema}.job as job on job.seq = slot.seq
    join {schema}.ready as ready on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
    where slot.key_id = given.key_id
    order by ready.turn desc, ready.seq desc limit given.excess
    for update of ready skip locked
) as admitted;

-- name: join_limit_keys
-- New jobs wait in their keys, which are locked.
insert into {schema}.blocked (key_id, place, seq)
select known.key_id, job.turn, job.seq
from unnest(%(seqs)s::bigint[]) as given (seq)
cross join lateral (select seq, lane_id, limit_key, turn from {schema}.job where seq = given.seq limit 1) as job
cross join lateral (
    select key_id from {schema}.limit_key where lane_id = job.lane_id and limit_key = job.limit_key limit 1
) as known;

-- name: put_limited
insert into {schema}.blocked (key_id, place, seq, attempt, excused, interrupted, lost, followed)
select * from unnest(
    %(key_id)s::bigint[], %(turn)s::bigint[], %(seq)s::bigint[], %(attempt)s::integer[], %(excused)s::integer[],
    %(interrupted)s::integer[], %(lost)s::integer[], %(followed)s::boolean[]
);

-- name: add_slot
insert into {schema}.limit_slot (key_id, seq, attempt, admitted_at)
select * from unnest(%(key_id)s::bigint[], %(seq)s::bigint[], %(attempt)s::integer[], %(admitted_at)s::bigint[]);

-- name: count_slot
update {schema}.limit_slot as slot set admitted_at = null
from unnest(%(key_id)s::bigint[], %(seq)s::bigint[]) as given (key_id, seq)
where slot.key_id = any(array(select unnest(%(key_id)s::bigint[])))
  and slot.key_id = given.key_id and slot.seq = given.seq;

-- name: drop_slot
delete from {schema}.limit_slot where ctid = any(array(
    select old.place from unnest(%(key_id)s::bigint[], %(seq)s::bigint[]) as given (key_id, seq)
    cross join lateral (
        select ctid as place from {schema}.limit_slot where key_id = given.key_id and seq = given.seq limit 1
    ) as old
));

-- name: set_limit_key
update {schema}.limit_key as known set rate_at = given.rate_at, wake_at = given.wake_at
from unnest(%(key_id)s::bigint[], %(rate_at)s::bigint[], %(wake_at)s::bigint[]) as given (key_id, rate_at, wake_at)
where known.key_id = any(array(select unnest(%(key_id)s::bigint[]))) and known.key_id = given.key_id;

-- name: drop_limit_key
delete from {schema}.limit_key where key_id = any(array(select unnest(%(key_id)s::bigint[])));

-- name: locked_limit_keys
-- Lock the limit keys of these jobs, except keys that other sessions have locked; return the jobs of those.
with held as materialized (
    select given.seq, known.key_id
    from unnest(%(seqs)s::bigint[]) as given (seq)
    cross join lateral (select lane_id, limit_key from {schema}.job where seq = given.seq limit 1) as job
    cross join lateral (
        select key_id from {schema}.limit_key where lane_id = job.lane_id and limit_key = job.limit_key limit 1
    ) as known
),
free as materialized (
    select key_id from {schema}.limit_key where key_id = any(array(select key_id from held)) for update skip locked
)
select seq from held where key_id not in (select key_id from free);
