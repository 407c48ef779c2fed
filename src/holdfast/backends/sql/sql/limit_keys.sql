-- Limit keys: which jobs are admitted, and which one is next. Rows of keys are locked after the rows of the jobs that
-- changed and after order keys, in the order of lane and key; each look at a key is a later statement than its lock.

-- name: woken_keys
-- Keys that are to be looked at now, and that no other session has locked.
select key_id from {schema}.limit_key where wake_at <= (select {now}) order by wake_at limit :limit
for update skip locked;

-- name: still_waiting
select known.key_id from {schema}.limit_key as known
where known.key_id = any(array(select unnest(:key_ids::bigint[])))
  and (select 1 from {schema}.blocked as waiting where waiting.key_id = known.key_id limit 1) is not null;

-- name: put_limited
insert into {schema}.blocked (key_id, place, seq, attempt, excused, interrupted, lost, followed)
values (:key_id, :turn, :seq, :attempt, :excused, :interrupted, :lost, :followed);

-- name: add_slot
insert into {schema}.limit_slot (key_id, seq, attempt, admitted_at) values (:key_id, :seq, :attempt, :admitted_at);

-- name: count_slot
update {schema}.limit_slot set admitted_at = null where key_id = :key_id and seq = :seq;

-- name: drop_slot
delete from {schema}.limit_slot where key_id = :key_id and seq = :seq;

-- name: set_limit_key
-- Also if nothing changed: a transaction with an older snapshot that locks this row later fails, and does not count slots
-- by that snapshot.
update {schema}.limit_key set rate_at = :rate_at, wake_at = :wake_at where key_id = :key_id;

-- name: drop_limit_key
delete from {schema}.limit_key where key_id = :key_id;

-- name: key_of_job
-- The limit key in which a job waits.
select task.key_max_running as max_running, task.key_rate_jobs as rate_jobs, task.key_rate_span as rate_span,
       task.key_rate_burst as rate_burst, known.rate_at, (
           select count(*) from {schema}.limit_slot as slot where slot.key_id = known.key_id
       ) as running, {now} as now, known.wake_at
from {schema}.job as job
join {schema}.limit_key as known on known.lane_id = job.lane_id and known.limit_key = job.limit_key
join {schema}.lane as lane on lane.lane_id = job.lane_id
left join {schema}.task as task on task.task = lane.task
where job.id = :id::uuid;

-- name: key_holders
select held.id::text as job_id, held.seq, lane.queue, lane.task, running.worker_id
from {schema}.job as job
join {schema}.limit_key as known on known.lane_id = job.lane_id and known.limit_key = job.limit_key
join {schema}.limit_slot as slot on slot.key_id = known.key_id
join {schema}.running as running on running.seq = slot.seq
join {schema}.job as held on held.seq = slot.seq
join {schema}.lane as lane on lane.lane_id = held.lane_id
where job.id = :id::uuid
order by running.lease_until, running.seq limit :limit;

-- name: set_limited_places
-- After the turns of waiting jobs have changed.
update {schema}.blocked set place = (select turn from {schema}.job as job where job.seq = blocked.seq)
where seq = any(array(select unnest(:seqs::bigint[]))) and key_id < 0;

-- name: wake_limit_keys
-- After a change of the limit. A key that another session has locked adapts when that one, or the next job, ends.
update {schema}.limit_key set wake_at = {now} where key_id = any(array(
    select known.key_id from {schema}.limit_key as known join {schema}.lane as lane on lane.lane_id = known.lane_id
    where lane.task = :task
    for update of known skip locked
));
