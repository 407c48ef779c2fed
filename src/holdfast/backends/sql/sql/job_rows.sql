-- The rows of jobs.

-- name: lock_job
-- One job in any state: at most one of these rows exists. If a job moves to another table while this waits for its row,
-- the snapshot contains none of its rows: its state is null.
select job.id::text as id, job.seq, job.lane_id, lane.queue, lane.task, job.order_key,
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
       coalesce(running.excused, ready.excused, blocked.excused, scheduled.excused, 0) as excused,
       coalesce(running.interrupted, ready.interrupted, blocked.interrupted, scheduled.interrupted, 0) as interrupted,
       coalesce(running.lost, failed.lost, cancelled.lost, ready.lost, blocked.lost, scheduled.lost, 0) as lost,
       coalesce(running.keyed, ready.keyed, scheduled.keyed, false) as keyed,
       coalesce(scheduled.retrying, false) as retrying, coalesce(running.isolated, false) as isolated,
       coalesce(running.cancel_asked, false) as cancel_asked, running.cancel_reason,
       coalesce(running.fence, 0) as fence, running.worker_id, running.started_at, running.lease_span,
       coalesce(completed.finished_at, failed.finished_at, cancelled.finished_at) as finished_at,
       coalesce(failed.reason, cancelled.reason) as reason, 0::bigint as held, {now} as token
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
left join lateral (
    select * from {schema}.blocked where job.order_key is not null and seq = job.seq for update
) as blocked on true
left join lateral (select * from {schema}.failed where seq = job.seq for update) as failed on true
left join lateral (select * from {schema}.cancelled where seq = job.seq for update) as cancelled on true
left join {schema}.completed as completed on completed.seq = job.seq
where job.id = :id::uuid;
