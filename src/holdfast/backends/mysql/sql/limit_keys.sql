-- Limit keys: the statements with locks inside, and those for many rows.

-- name: add_limit_keys
-- Lock the keys of these jobs, and add the missing ones. A number that a job has given to its key returns with that key
-- only.
insert into holdfast_limit_key (key_id, lane_id, limit_key)
select -min(job.seq), job.lane_id, job.limit_key from holdfast_job as job
where job.seq in (:seqs) and job.limit_key is not null
group by job.lane_id, job.limit_key order by job.lane_id, job.limit_key
on duplicate key update rate_at = holdfast_limit_key.rate_at;

-- name: add_missing_limit_keys
-- The same without locks on keys that exist.
insert into holdfast_limit_key (key_id, lane_id, limit_key)
select -min(job.seq), job.lane_id, job.limit_key from holdfast_job as job
left join holdfast_limit_key as known on known.lane_id = job.lane_id and known.limit_key = job.limit_key
where job.seq in (:seqs) and job.limit_key is not null and known.key_id is null
group by job.lane_id, job.limit_key order by job.lane_id, job.limit_key
on duplicate key update rate_at = holdfast_limit_key.rate_at;

-- part: limit_keys_by_name
select known.key_id, past.seq
from (
    select seq, lane_id, limit_key from holdfast_job where seq in (:seqs) and limit_key is not null
    order by lane_id, limit_key limit 1000000
) as past
straight_join holdfast_limit_key as known force index (by_name)
    on known.lane_id = past.lane_id and known.limit_key = past.limit_key;

-- name: lock_limit_keys
-- The keys of these jobs, in the order in which every transaction locks keys.
{limit_keys_by_name} for update;

-- name: free_limit_keys
-- The same, without keys that other sessions have locked.
{limit_keys_by_name} for update skip locked;

-- name: limit_keys_of
select known.key_id, job.seq from holdfast_job as job
straight_join holdfast_limit_key as known on known.lane_id = job.lane_id and known.limit_key = job.limit_key
where job.seq in (:seqs);

-- name: limited_keys
-- What each key allows; how many of its jobs are admitted and need no further look; how many of these are ready though
-- the rate, which was set later, has not counted them. The indexes are named: while the statistics of a filling table are
-- old, MySQL joins by a scan of all jobs for each key.
select known.key_id, known.rate_at, task.key_max_running as max_running, task.key_rate_jobs as rate_jobs,
       task.key_rate_span as rate_span, task.key_rate_burst as rate_burst, (
           select count(*) from holdfast_limit_slot as slot
           left join holdfast_running as running force index (primary) on running.seq = slot.seq
           left join holdfast_job as job force index (primary) on job.seq = slot.seq
           left join holdfast_ready as ready force index (primary)
               on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
           where slot.key_id = known.key_id and slot.admitted_at is null
             and (running.seq is not null or ready.seq is not null)
       ) as counted, case when task.key_rate_jobs is null then 0 else (
           select count(*) from holdfast_limit_slot as slot
           straight_join holdfast_job as job force index (primary) on job.seq = slot.seq
           straight_join holdfast_ready as ready force index (primary)
               on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
           where slot.key_id = known.key_id and slot.admitted_at is null
       ) end as unrated, {now} as now
from holdfast_limit_key as known
straight_join holdfast_lane as lane on lane.lane_id = known.lane_id
left join holdfast_task as task on task.task = lane.task
where known.key_id in (:key_ids);

-- name: open_slots
-- The slots whose start is not counted, and those whose job is no longer admitted; with the start after the admission.
select slot.key_id, slot.seq, slot.admitted_at, ready.seq is not null as is_ready, running.seq is not null as is_running,
       case when coalesce(running.attempt, completed.attempt, ended.attempt, 0) > slot.attempt
            then coalesce(running.started_at, completed.started_at, ended.started_at) end as started_at
from holdfast_limit_slot as slot
left join holdfast_running as running force index (primary) on running.seq = slot.seq
left join holdfast_job as job force index (primary) on job.seq = slot.seq
left join holdfast_ready as ready force index (primary)
    on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
left join holdfast_completed as completed force index (primary) on completed.seq = slot.seq
left join holdfast_attempt as ended on ended.seq = slot.seq and ended.attempt = (
    select max(attempt) from holdfast_attempt where seq = slot.seq
)
where slot.key_id in (:key_ids) and (slot.admitted_at is not null or (ready.seq is null and running.seq is null));

-- name: first_limited
-- The first waiting jobs of each key, at least as many as have room.
select waiting.key_id, waiting.seq, job.lane_id, job.turn, job.priority, waiting.attempt, waiting.excused,
       waiting.interrupted, waiting.lost, {now} as now, 1 as followed, 0 as retrying
from (
    select key_id, place, seq, attempt, excused, interrupted, lost,
           row_number() over (partition by key_id order by place, seq) as number
    from holdfast_blocked where key_id in (:key_ids)
) as waiting
straight_join holdfast_job as job on job.seq = waiting.seq
where waiting.number <= :most and '[:rooms]' <> ''
order by waiting.place, waiting.seq;

-- name: last_admitted
-- The ready jobs of each key, the last ones first, at least as many as are over its limit.
select slot.key_id, ready.seq, ready.lane_id, ready.turn, ready.attempt, ready.excused, ready.interrupted, ready.lost,
       ready.followed
from (
    select held.key_id, held.seq, job.lane_id, job.turn from holdfast_limit_slot as held
    straight_join holdfast_job as job on job.seq = held.seq
    where held.key_id in (:key_ids) and '[:excess]' <> '' limit 1000000
) as slot
straight_join holdfast_ready as ready force index (primary)
    on ready.lane_id = slot.lane_id and ready.turn = slot.turn and ready.seq = slot.seq
order by ready.turn desc, ready.seq desc for update skip locked;

-- name: join_limit_keys
-- New jobs wait in their keys.
insert into holdfast_blocked (key_id, place, seq)
select known.key_id, job.turn, job.seq from holdfast_job as job
straight_join holdfast_limit_key as known on known.lane_id = job.lane_id and known.limit_key = job.limit_key
where job.seq in (:seqs);

-- name: set_limited_places
-- After the turns of waiting jobs have changed.
update {given_seqs}
straight_join holdfast_blocked as waiting force index (primary) on waiting.seq = given.seq
set waiting.place = (select turn from holdfast_job as job where job.seq = given.seq)
where waiting.key_id < 0;

-- name: wake_limit_key
update holdfast_limit_key force index (by_name) set wake_at = {now} where lane_id = :lane_id and limit_key = :limit_key;

-- name: wake_limit_keys
-- After a change of the limit. A key that another session has locked adapts when that one, or the next job, ends.
update (
    select known.key_id from holdfast_limit_key as known
    where known.lane_id in (select lane_id from holdfast_lane where task = :task) limit 1000000 for update skip locked
) as given
straight_join holdfast_limit_key as woken force index (primary) on woken.key_id = given.key_id
set woken.wake_at = {now};
