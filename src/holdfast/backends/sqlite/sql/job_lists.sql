-- Lists and counts for operators; read only.

-- name: job_body
-- As bytes: a job with damaged text must still be shown.
select cast(job.payload as blob) as payload, cast(job.headers as blob) as headers, job.timeout, completed.result,
       job.unique_key, completed.fence
from holdfast_job as job left join holdfast_completed as completed on completed.seq = job.seq
where job.seq = :seq;

-- name: list_ready
-- Each lane in the order in which its jobs will be claimed, merged.
select job.id, job.seq, lane.queue, lane.task, 'ready' as state, job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, null as started_at, null as finished_at, null as worker_id, null as reason,
       job.order_key, job.limit_key, state.excused
from holdfast_lane as lane
cross join holdfast_ready as state on state.lane_id = lane.lane_id and (state.turn, state.seq) in (
    select turn, seq from holdfast_ready
    where lane_id = lane.lane_id and (turn, seq) > (:after_turn, :after_seq) order by turn, seq limit :limit
)
cross join holdfast_job as job on job.seq = state.seq
where (:queue is null or lane.queue = :queue) and (:task is null or lane.task = :task)
order by state.turn, state.seq limit :limit;

-- name: counts
select minute_at, lane.queue, lane.task, enqueued, completed, retried, failed, cancelled, lost, run_time
from holdfast_count join holdfast_lane as lane using (lane_id)
where minute_at >= :now - :since order by minute_at, lane.queue, lane.task;

-- name: count_sums
select min(minute_at) as minute_at, lane.queue, lane.task, sum(enqueued) as enqueued, sum(completed) as completed,
       sum(retried) as retried, sum(failed) as failed, sum(cancelled) as cancelled, sum(lost) as lost,
       sum(run_time) as run_time
from holdfast_count join holdfast_lane as lane using (lane_id)
where minute_at >= :now - :since group by lane.queue, lane.task order by lane.queue, lane.task;

-- name: outstanding
with lanes as materialized (
    select lane.lane_id, lane.queue, lane.task, queue.paused, coalesce(task.paused, 0) as task_paused
    from holdfast_lane as lane
    join holdfast_queue as queue on queue.queue = lane.queue
    left join holdfast_task as task on task.task = lane.task
)
select 'ready' as state, lane.queue, lane.task, lane.paused or lane.task_paused as paused, state.number
from (select lane_id, count(*) as number from holdfast_ready group by lane_id) as state
join lanes as lane on lane.lane_id = state.lane_id
union all
select case when state.retrying then 'retrying' else 'delayed' end, lane.queue, lane.task,
       lane.paused or lane.task_paused, count(*)
from holdfast_scheduled as state
cross join holdfast_job as job on job.seq = state.seq
cross join lanes as lane on lane.lane_id = job.lane_id
group by state.retrying, lane.lane_id
union all
select 'running', lane.queue, lane.task, 0, count(*)
from holdfast_running as state join holdfast_lane as lane on lane.lane_id = state.lane_id
group by lane.queue, lane.task
union all
-- Waiting jobs count like the heads of their order keys, under the task of the head. A head that runs is not held back
-- by the pause of its task, and the next one may be of another task.
select case
           when running.seq is not null then 'behind running'
           when exists (
               select 1 from holdfast_scheduled
               where run_at = head.turn + head.priority * :priority_step and seq = head.seq and not retrying
           ) then 'delayed'
           else 'blocked'
       end,
       keys.queue, lane.task, lane.paused or (lane.task_paused and running.seq is null), state.number
from (select key_id, count(*) as number from holdfast_blocked group by key_id) as state
cross join holdfast_key_head as keys on keys.key_id = state.key_id
cross join holdfast_job as head on head.seq = keys.head_seq
cross join lanes as lane on lane.lane_id = head.lane_id
left join holdfast_running as running on running.seq = head.seq
union all
-- Jobs that wait for a slot of their limit key.
select 'blocked', lane.queue, lane.task, lane.paused or lane.task_paused, state.number
from (select key_id, count(*) as number from holdfast_blocked where key_id < 0 group by key_id) as state
cross join holdfast_limit_key as keys on keys.key_id = state.key_id
cross join lanes as lane on lane.lane_id = keys.lane_id
union all
-- Ended parents whose children are still to be decided.
select 'undecided', '', '', 0, count(*) from holdfast_parent_change having count(*) > 0;
