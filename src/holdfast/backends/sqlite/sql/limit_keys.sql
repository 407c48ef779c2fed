-- Limit keys: the statements that differ from other stores. The write lock is held.

-- name: add_limit_keys
-- The keys of these jobs that are missing; their numbers are negative.
insert into holdfast_limit_key (key_id, lane_id, limit_key)
select (select coalesce(min(key_id), 0) from holdfast_limit_key) - row_number() over (order by lane_id, limit_key),
       lane_id, limit_key
from (
    select distinct job.lane_id, job.limit_key
    from json_each(:seqs) as given cross join holdfast_job as job on job.seq = given.value
    where job.limit_key is not null
)
where true
on conflict (lane_id, limit_key) do nothing;

-- name: add_missing_limit_keys
insert into holdfast_limit_key (key_id, lane_id, limit_key)
select (select coalesce(min(key_id), 0) from holdfast_limit_key) - row_number() over (order by lane_id, limit_key),
       lane_id, limit_key
from (
    select distinct job.lane_id, job.limit_key
    from json_each(:seqs) as given cross join holdfast_job as job on job.seq = given.value
    where job.limit_key is not null
)
where true
on conflict (lane_id, limit_key) do nothing;

-- name: lock_limit_keys
select known.key_id, job.seq
from json_each(:seqs) as given
cross join holdfast_job as job on job.seq = given.value
cross join holdfast_limit_key as known on known.lane_id = job.lane_id and known.limit_key = job.limit_key;

-- name: free_limit_keys
select known.key_id, job.seq
from json_each(:seqs) as given
cross join holdfast_job as job on job.seq = given.value
cross join holdfast_limit_key as known on known.lane_id = job.lane_id and known.limit_key = job.limit_key;

-- name: limited_keys
-- What each key allows; how many of its jobs are admitted and need no further look; how many of these are ready though
-- the rate, which was set later, has not counted them.
select known.key_id, known.rate_at, task.key_max_running as max_running, task.key_rate_jobs as rate_jobs,
       task.key_rate_span as rate_span, task.key_rate_burst as rate_burst, (
           select count(*) from holdfast_limit_slot as slot
           where slot.key_id = known.key_id and slot.admitted_at is null and (
               exists (select 1 from holdfast_running where seq = slot.seq) or exists (
                   select 1 from holdfast_job as job cross join holdfast_ready as ready
                       on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
                   where job.seq = slot.seq
               )
           )
       ) as counted, case when task.key_rate_jobs is null then 0 else (
           select count(*) from holdfast_limit_slot as slot
           cross join holdfast_job as job on job.seq = slot.seq
           cross join holdfast_ready as ready
               on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
           where slot.key_id = known.key_id and slot.admitted_at is null
       ) end as unrated, :now as now
from json_each(:key_ids) as given
cross join holdfast_limit_key as known on known.key_id = given.value
cross join holdfast_lane as lane on lane.lane_id = known.lane_id
left join holdfast_task as task on task.task = lane.task;

-- name: open_slots
-- The slots whose start is not counted, and those whose job is no longer admitted; with the start after the admission.
select slot.key_id, slot.seq, slot.admitted_at, ready.seq is not null as is_ready, running.seq is not null as is_running,
       case when coalesce(running.attempt, completed.attempt, ended.attempt, 0) > slot.attempt
            then coalesce(running.started_at, completed.started_at, ended.started_at) end as started_at
from json_each(:key_ids) as given
cross join holdfast_limit_slot as slot on slot.key_id = given.value
left join holdfast_running as running on running.seq = slot.seq
left join holdfast_job as job on job.seq = slot.seq
left join holdfast_ready as ready on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
left join holdfast_completed as completed on completed.seq = slot.seq
left join holdfast_attempt as ended on ended.seq = slot.seq and ended.attempt = (
    select max(attempt) from holdfast_attempt where seq = slot.seq
)
where slot.admitted_at is not null or (ready.seq is null and running.seq is null);

-- name: first_limited
-- The first waiting jobs of each key, at least as many as have room: a limit cannot depend on a row.
select waiting.key_id, waiting.seq, job.lane_id, job.turn, job.priority, waiting.attempt, waiting.excused,
       waiting.interrupted, waiting.lost, :now as now, true as followed, false as retrying
from json_each(:key_ids) as given
cross join holdfast_blocked as waiting on waiting.key_id = given.value and (waiting.place, waiting.seq) in (
    select place, seq from holdfast_blocked where key_id = given.value order by place, seq limit :most
)
cross join holdfast_job as job on job.seq = waiting.seq
where json_array_length(:rooms) > 0
order by waiting.place, waiting.seq;

-- name: last_admitted
-- The ready jobs of each key, the last ones first, at least as many as are over its limit.
select given.value as key_id, ready.seq, ready.lane_id, ready.turn, ready.attempt, ready.excused, ready.interrupted,
       ready.lost, ready.followed
from json_each(:key_ids) as given
cross join holdfast_limit_slot as slot on slot.key_id = given.value
cross join holdfast_job as job on job.seq = slot.seq
cross join holdfast_ready as ready on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
where json_array_length(:excess) > 0
order by ready.turn desc, ready.seq desc;

-- name: join_limit_keys
-- New jobs wait in their keys.
insert into holdfast_blocked (key_id, place, seq)
select known.key_id, job.turn, job.seq
from json_each(:seqs) as given
cross join holdfast_job as job on job.seq = given.value
cross join holdfast_limit_key as known on known.lane_id = job.lane_id and known.limit_key = job.limit_key;

-- name: new_limited
-- The due jobs after a seq that have a limit key.
select seq from holdfast_job
where seq > :after and limit_key is not null and turn + priority * :priority_step <= :now;

-- name: wake_limit_keys
update holdfast_limit_key set wake_at = :now
where lane_id in (select lane_id from holdfast_lane where task = :task);

-- name: set_limited_places
update holdfast_blocked set place = (select turn from holdfast_job as job where job.seq = holdfast_blocked.seq)
where seq in (select value from json_each(:seqs)) and key_id < 0;
