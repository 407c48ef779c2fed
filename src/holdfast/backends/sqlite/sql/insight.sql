-- Read-only statements for people. Lists are keyset-paged by seq, newest first.

-- name: list_ready
-- One lane, in the order in which its jobs will be claimed; the caller merges lanes.
select job.id, job.seq, :queue, :task, 'ready', job.priority, state.attempt, job.max_attempts, job.enqueued_at,
       job.turn, null, null, null, null, job.order_key
from (
    select turn, seq, attempt from holdfast_ready
    where lane_id = :lane_id and (turn, seq) > (:after_turn, :after_seq) order by turn, seq limit :limit
) as state
cross join holdfast_job as job on job.seq = state.seq;

-- name: all_lanes
select lane_id, queue, task from holdfast_lane
where (:queue is null or queue = :queue) and (:task is null or task = :task);

-- name: list_scheduled
select job.id, job.seq, lane.queue, lane.task, 'scheduled', job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, null, null, null, null, job.order_key
from holdfast_scheduled as state
cross join holdfast_job as job on job.seq = state.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
where (state.run_at, state.seq) > (:after_turn, :after_seq)
  and (:queue is null or lane.queue = :queue) and (:task is null or lane.task = :task)
order by state.run_at, state.seq limit :limit;

-- name: list_running
select job.id, job.seq, lane.queue, lane.task, 'running', job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, state.started_at, null, state.worker_id, null, job.order_key
from holdfast_running as state
cross join holdfast_job as job on job.seq = state.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
where state.seq < :before and (:queue is null or lane.queue = :queue) and (:task is null or lane.task = :task)
order by state.seq desc limit :limit;

-- name: list_completed
select job.id, job.seq, lane.queue, lane.task, 'completed', job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, state.started_at, state.finished_at, state.worker_id, null,
       job.order_key
from holdfast_completed as state
cross join holdfast_job as job on job.seq = state.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
where state.seq < :before and (:queue is null or lane.queue = :queue) and (:task is null or lane.task = :task)
order by state.seq desc limit :limit;

-- name: list_failed
select job.id, job.seq, lane.queue, lane.task, 'failed', job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, null, state.finished_at, null, state.reason, job.order_key
from holdfast_failed as state
cross join holdfast_job as job on job.seq = state.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
where state.seq < :before and (:queue is null or lane.queue = :queue) and (:task is null or lane.task = :task)
order by state.seq desc limit :limit;

-- name: list_cancelled
select job.id, job.seq, lane.queue, lane.task, 'cancelled', job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, null, state.finished_at, null, state.reason, job.order_key
from holdfast_cancelled as state
cross join holdfast_job as job on job.seq = state.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
where state.seq < :before and (:queue is null or lane.queue = :queue) and (:task is null or lane.task = :task)
order by state.seq desc limit :limit;

-- name: list_blocked
select job.id, job.seq, lane.queue, lane.task, 'blocked', job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, null, null, null, null, job.order_key
from holdfast_blocked as state
cross join holdfast_job as job on job.seq = state.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
where state.seq > :after_seq and (:queue is null or lane.queue = :queue) and (:task is null or lane.task = :task)
order by state.seq limit :limit;

-- name: find_ids
select id from holdfast_job where id >= :first and id < :last order by id limit :limit;

-- name: job_body
-- As bytes: a damaged row must not keep a person from looking at its job.
select cast(payload as blob), cast(headers as blob), timeout from holdfast_job where id = :id;

-- name: job_attempts
select attempt, worker_id, started_at, ended_at, outcome, error_class, message, traceback, signature
from holdfast_attempt where seq = :seq order by attempt;

-- name: leases
select job.id, seq, fence, lane.queue, lane.task, worker_id, running.attempt, started_at, lease_until - :now,
       isolated, cancel_asked, percent, note
from holdfast_running as running join holdfast_job as job using (seq)
join holdfast_lane as lane on lane.lane_id = job.lane_id
where (:id is null or job.id = :id) and (:expired_only = 0 or lease_until <= :now)
order by lease_until, seq limit :limit;

-- name: queues
-- The last column is since when the job is due whose turn is next, of whatever task: the first of the heads of its lanes.
select queue, paused,
    (select count(*) from holdfast_lane as lane join holdfast_ready as state using (lane_id)
     where lane.queue = holdfast_queue.queue),
    (select count(*) from holdfast_running as state join holdfast_lane as lane using (lane_id)
     where lane.queue = holdfast_queue.queue),
    (select job.turn + job.priority * :priority_step
     from holdfast_lane as lane cross join holdfast_job as job on job.seq = (
         select seq from holdfast_ready where lane_id = lane.lane_id order by turn, seq limit 1
     )
     where lane.queue = holdfast_queue.queue order by job.turn, job.seq limit 1)
from holdfast_queue order by queue;

-- name: scheduled_by_queue
select lane.queue, count(*) from holdfast_scheduled as state
cross join holdfast_job as job on job.seq = state.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id group by lane.queue;

-- name: blocked_by_queue
select line.queue, count(*) from holdfast_blocked as state
cross join holdfast_key_line as line on line.line_id = state.line_id group by line.queue;

-- name: failed_by_queue
select lane.queue, count(*) from holdfast_failed as state
cross join holdfast_job as job on job.seq = state.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id group by lane.queue;

-- name: workers
select beat, started_at, :now - beat_at from holdfast_worker order by started_at, worker_id;

-- name: counts
select minute_at, lane.queue, lane.task, enqueued, completed, retried, failed, cancelled, lost, run_time
from holdfast_count join holdfast_lane as lane using (lane_id)
where minute_at >= :since order by minute_at, lane.queue, lane.task;

-- name: ready_by_lane
select lane.queue, lane.task, paused,
       (select count(*) from holdfast_ready where lane_id = lane.lane_id)
from holdfast_lane as lane join holdfast_queue using (queue);

-- name: waiting_by_lane
select lane.queue, lane.task, paused, state.retrying, count(*)
from holdfast_scheduled as state
cross join holdfast_job as job on job.seq = state.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
join holdfast_queue as queue on queue.queue = lane.queue
group by lane.queue, lane.task, paused, state.retrying;

-- name: running_by_lane
select lane.queue, lane.task, count(*) from holdfast_running join holdfast_lane as lane using (lane_id)
group by lane.queue, lane.task;

-- name: blocked_by_line
-- How many wait in each line, and for what: a job of which task, does it run, did its caller delay it?
select line.queue, lane.task, paused,
       exists (select 1 from holdfast_running where seq = head.seq) as runs,
       exists (
           select 1 from holdfast_scheduled
           where run_at = head.turn + head.priority * :priority_step and seq = head.seq and retrying = 0
       ) as is_delayed,
       state.number
from (select line_id, count(*) as number from holdfast_blocked group by line_id) as state
cross join holdfast_key_line as line on line.line_id = state.line_id
cross join holdfast_job as head on head.seq = line.head_seq
cross join holdfast_lane as lane on lane.lane_id = head.lane_id
join holdfast_queue as queue on queue.queue = line.queue;
