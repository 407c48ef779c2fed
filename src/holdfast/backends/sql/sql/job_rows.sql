-- The rows of jobs.

-- part: locked_job
-- A job in any state: at most one of these rows exists.
job.id::text as id, job.seq, job.lane_id, lane.queue, lane.task, job.order_key, job.limit_key,
       case
           when running.seq is not null then 'running'
           when completed.seq is not null then 'completed'
           when failed.seq is not null then 'failed'
           when cancelled.seq is not null then 'cancelled'
           when ready.seq is not null then 'ready'
           when blocked.seq is not null then 'blocked'
           when scheduled.seq is not null then 'scheduled'
       end as state,
       job.priority, job.max_attempts, job.turn,
       coalesce(running.attempt, completed.attempt, failed.attempt, cancelled.attempt, ready.attempt,
                blocked.attempt, scheduled.attempt, 0) as attempt,
       coalesce(running.excused, failed.excused, cancelled.excused, ready.excused, blocked.excused, scheduled.excused,
                0) as excused,
       coalesce(running.interrupted, ready.interrupted, blocked.interrupted, scheduled.interrupted, 0) as interrupted,
       coalesce(running.lost, failed.lost, cancelled.lost, ready.lost, blocked.lost, scheduled.lost, 0) as lost,
       coalesce(running.followed, ready.followed, scheduled.followed, blocked.followed, false) as followed,
       coalesce(scheduled.retrying, false) as retrying, coalesce(running.isolated, false) as isolated,
       coalesce(running.cancel_asked, false) as cancel_asked, running.cancel_reason,
       coalesce(running.fence, 0) as fence, running.worker_id, running.started_at, running.lease_span,
       coalesce(completed.finished_at, failed.finished_at, cancelled.finished_at) as finished_at,
       coalesce(failed.reason, cancelled.reason) as reason, 0::bigint as held, {now} as token;

-- name: lock_job
-- One job in any state: at most one of these rows exists. If a job moves to another table while this waits for its row,
-- the snapshot contains none of its rows: its state is null.
select {locked_job}
from {schema}.job as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
left join lateral (select * from {schema}.running where seq = job.seq for update) as running on true
left join lateral (
    select * from {schema}.ready where lane_id = job.lane_id and turn = job.turn and seq = job.seq for update
) as ready on true
left join lateral (
    select * from {schema}.scheduled
    where run_at = job.turn + job.priority::bigint * {priority_step} and seq = job.seq for update
) as scheduled on true
left join lateral (select * from {schema}.blocked where seq = job.seq for update) as blocked on true
left join lateral (select * from {schema}.failed where seq = job.seq for update) as failed on true
left join lateral (select * from {schema}.cancelled where seq = job.seq for update) as cancelled on true
left join lateral (select * from {schema}.completed where seq = job.seq for update) as completed on true
where job.id = :id::uuid;

-- name: ids_by_seq
select id::text as id from {schema}.job where id = any(:ids::uuid[]) order by seq;

-- name: leave_{state}: running, blocked, failed, cancelled
delete from {schema}.{state} where seq = :seq;

-- name: leave_ready
delete from {schema}.ready where lane_id = :lane_id and turn = :turn and seq = :seq;

-- name: leave_scheduled
delete from {schema}.scheduled where run_at = :run_at and seq = :seq;

-- name: put_ready
insert into {schema}.ready (lane_id, turn, seq, attempt, excused, interrupted, lost, followed)
values (:lane_id, :turn, :seq, :attempt, :excused, :interrupted, :lost, :followed);

-- name: put_scheduled
insert into {schema}.scheduled (run_at, seq, retrying, attempt, excused, interrupted, lost, followed)
values (:run_at, :seq, :retrying, :attempt, :excused, :interrupted, :lost, :followed);

-- name: put_{ended}: failed, cancelled
insert into {schema}.{ended} (seq, attempt, excused, lost, finished_at, reason)
values (:seq, :attempt, :excused, :lost, :finished_at, :reason);

-- name: set_turns
update {schema}.job set turn = :turn where seq = :seq;

-- name: ask_to_cancel
update {schema}.running set cancel_asked = true, cancel_reason = :reason where seq = :seq;

-- name: record_attempts
insert into {schema}.attempt (
    seq, attempt, fence, by_holder, worker_id, started_at, ended_at, outcome, error_class, message, traceback, signature
) values (
    :seq, :attempt, :fence, :by_holder, :worker_id, :started_at, :ended_at, :outcome, :error_class, :message, :traceback,
    :signature
);

-- name: thin_attempts
-- Only the first few and the last few attempts are kept: a job that retries for weeks stays small.
delete from {schema}.attempt where seq = :seq and attempt > :after and attempt <= :up_to;
