-- What a run of jobs reads and writes, in words that all dialects understand.
--
-- {at} is the prefix of every table, {mark} a parameter, {number} the type of a column that counts its rows, {ours} the
-- queues of runs, {text} the type of a column for names, {chars} and {whole} what texts and numbers are cast to. The tables of effects and steps have no unique constraint on purpose: what took effect twice is there
-- twice.

-- name: create_effect
create table {at}torture_effect (
    effect_number {number},
    job_id {text} not null,
    attempt integer not null,
    fence bigint not null,
    worker_id {text} not null
);

-- name: index_effect
create index torture_effect_by_job on {at}torture_effect (job_id);

-- name: create_step
create table {at}torture_step (
    step_number {number},
    job_id {text} not null,
    attempt integer not null,
    fence bigint not null,
    worker_id {text} not null
);

-- name: index_step
create index torture_step_by_job on {at}torture_step (job_id);

-- name: insert_effect
insert into {at}torture_effect (job_id, attempt, fence, worker_id) values ({mark}, {mark}, {mark}, {mark});

-- name: insert_step
insert into {at}torture_step (job_id, attempt, fence, worker_id) values ({mark}, {mark}, {mark}, {mark});

-- name: listed
select name from {at}torture_made order by name;

-- name: hold
select count(*) from {at}meta;

-- name: count_foreign
select count(*) from {at}job join {at}lane using (lane_id) where queue not in ({ours});

-- name: count_state
select count(*) from {at}{state};

-- name: last_effect
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

-- name: wrong_order
select job_id from (
    select effect.job_id, job.seq, lag(job.seq) over (partition by job.order_key order by effect.effect_number) as earlier
    from {at}torture_effect as effect join {at}job as job on cast(job.id as {chars}) = effect.job_id
    where job.order_key is not null
) as placed
where earlier > seq
limit 20;

-- name: all_attempts
select seq, attempt, outcome, worker_id, started_at, ended_at, error_class from {at}attempt order by seq, attempt;

-- name: all_jobs
-- A job that is in two states at once has two rows.
with place as (
    select seq, 'scheduled' as state, attempt, cast(null as {chars}) as worker_id, cast(null as {whole}) as finished_at,
           cast(null as {chars}) as reason
    from {at}scheduled
    union all select seq, 'blocked', attempt, null, null, null from {at}blocked
    union all select seq, 'ready', attempt, null, null, null from {at}ready
    union all select seq, 'running', attempt, worker_id, null, null from {at}running
    union all select seq, 'completed', attempt, worker_id, finished_at, null from {at}completed
    union all select seq, 'failed', attempt, null, finished_at, reason from {at}failed
    union all select seq, 'cancelled', attempt, null, finished_at, reason from {at}cancelled
)
select cast(job.id as {chars}), place.state, place.attempt, job.max_attempts, job.seq,
       (select count(*) from {at}completed as done where done.seq = job.seq),
       place.worker_id, job.turn, job.priority, job.enqueued_at, place.finished_at, place.reason, job.headers,
       lane.queue, lane.task
from place
join {at}job as job on job.seq = place.seq
join {at}lane as lane on lane.lane_id = job.lane_id
order by job.seq;
