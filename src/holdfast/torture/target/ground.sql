-- What the conductor reads of a store under torture, in words that both dialects understand.
--
-- {at} stands before the name of every table; {ours} are the queues of runs. The tables of effects and steps have no
-- unique constraint on purpose: what took effect twice stands there twice.

-- name: count_foreign
select count(*) from {at}job join {at}lane using (lane_id) where queue not in ({ours});

-- name: count_effects
select coalesce(max(effect_number), 0) from {at}torture_effect;

-- name: doubled_effects
select count(*) from {at}torture_effect as late
where late.effect_number > {after}
  and exists (
    select 1 from {at}torture_effect as early
    where early.job_id = late.job_id and early.effect_number < late.effect_number
  );

-- name: all_effects
select job_id, fence, attempt, worker_id, effect_number from {at}torture_effect order by effect_number;

-- name: doubled_steps
select job_id, min(fence) from {at}torture_step group by job_id, fence having count(*) > 1 limit 20;

-- name: missing_steps
select effect.job_id from {at}torture_effect as effect
where effect.job_id in (select job_id from {at}torture_step)
  and not exists (
    select 1 from {at}torture_step as step where step.job_id = effect.job_id and step.fence = effect.fence
  )
limit 20;

-- name: count_state
select count(*) from {at}{state} as place
join {at}job as job on job.seq = place.seq
join {at}lane as lane on lane.lane_id = job.lane_id
where queue in ({ours});

-- name: count_state_alone
select count(*) from {at}{state};

-- name: hold
select count(*) from {at}meta;

-- name: all_attempts
select seq, attempt, outcome, worker_id, started_at, ended_at, error_class from {at}attempt order by seq, attempt;

-- name: insert_effect
insert into {at}torture_effect (job_id, attempt, fence, worker_id) values ({mark}, {mark}, {mark}, {mark});

-- name: insert_step
insert into {at}torture_step (job_id, attempt, fence, worker_id) values ({mark}, {mark}, {mark}, {mark});

-- name: drop_effect
drop table if exists {at}torture_effect;

-- name: drop_step
drop table if exists {at}torture_step;

-- name: clear_jobs
delete from {at}{table} where seq in (select seq from {at}job join {at}lane using (lane_id) where queue in ({ours}));

-- name: clear_queues
delete from {at}{table} where queue in ({ours});

-- name: clear_counts
delete from {at}{table} where lane_id in (select lane_id from {at}lane where queue in ({ours}));

-- name: index_effect
create index torture_effect_by_job on {at}torture_effect (job_id);

-- name: index_step
create index torture_step_by_job on {at}torture_step (job_id);

-- name: rows_scheduled
select cast(job.id as text), 'scheduled', place.attempt, job.max_attempts, job.seq as seq,
       (select count(*) from {at}completed as done where done.seq = job.seq),
       cast(null as text), job.turn, job.priority, job.enqueued_at, cast(null as bigint), cast(null as text),
       job.headers, queue, task
from {at}scheduled as place
join {at}job as job on job.seq = place.seq
join {at}lane as lane on lane.lane_id = job.lane_id
where queue in ({ours})

-- name: rows_blocked
select cast(job.id as text), 'blocked', place.attempt, job.max_attempts, job.seq as seq,
       (select count(*) from {at}completed as done where done.seq = job.seq),
       cast(null as text), job.turn, job.priority, job.enqueued_at, cast(null as bigint), cast(null as text),
       job.headers, queue, task
from {at}blocked as place
join {at}job as job on job.seq = place.seq
join {at}lane as lane on lane.lane_id = job.lane_id
where queue in ({ours})

-- name: rows_ready
select cast(job.id as text), 'ready', place.attempt, job.max_attempts, job.seq as seq,
       (select count(*) from {at}completed as done where done.seq = job.seq),
       cast(null as text), job.turn, job.priority, job.enqueued_at, cast(null as bigint), cast(null as text),
       job.headers, queue, task
from {at}ready as place
join {at}job as job on job.seq = place.seq
join {at}lane as lane on lane.lane_id = job.lane_id
where queue in ({ours})

-- name: rows_running
select cast(job.id as text), 'running', place.attempt, job.max_attempts, job.seq as seq,
       (select count(*) from {at}completed as done where done.seq = job.seq),
       place.worker_id, job.turn, job.priority, job.enqueued_at, cast(null as bigint), cast(null as text),
       job.headers, queue, task
from {at}running as place
join {at}job as job on job.seq = place.seq
join {at}lane as lane on lane.lane_id = job.lane_id
where queue in ({ours})

-- name: rows_completed
select cast(job.id as text), 'completed', place.attempt, job.max_attempts, job.seq as seq,
       (select count(*) from {at}completed as done where done.seq = job.seq),
       place.worker_id, job.turn, job.priority, job.enqueued_at, place.finished_at, cast(null as text),
       job.headers, queue, task
from {at}completed as place
join {at}job as job on job.seq = place.seq
join {at}lane as lane on lane.lane_id = job.lane_id
where queue in ({ours})

-- name: rows_failed
select cast(job.id as text), 'failed', place.attempt, job.max_attempts, job.seq as seq,
       (select count(*) from {at}completed as done where done.seq = job.seq),
       cast(null as text), job.turn, job.priority, job.enqueued_at, place.finished_at, place.reason,
       job.headers, queue, task
from {at}failed as place
join {at}job as job on job.seq = place.seq
join {at}lane as lane on lane.lane_id = job.lane_id
where queue in ({ours})

-- name: rows_cancelled
select cast(job.id as text), 'cancelled', place.attempt, job.max_attempts, job.seq as seq,
       (select count(*) from {at}completed as done where done.seq = job.seq),
       cast(null as text), job.turn, job.priority, job.enqueued_at, place.finished_at, place.reason,
       job.headers, queue, task
from {at}cancelled as place
join {at}job as job on job.seq = place.seq
join {at}lane as lane on lane.lane_id = job.lane_id
where queue in ({ours})
