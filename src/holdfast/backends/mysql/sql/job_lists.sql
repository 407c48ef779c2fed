-- Lists and counts for operators; read only.

-- name: job_body
select job.payload, job.headers, job.timeout, completed.result, job.unique_key, completed.fence
from holdfast_job as job left join holdfast_completed as completed on completed.seq = job.seq
where job.seq = :seq;

-- name: lanes_of
select lane_id, queue, task, 0 as is_limited from holdfast_lane
where (:queue is null or queue = :queue) and (:task is null or task = :task);

-- part: given_seqs
(select * from json_table('[:seqs]', '$[*]' columns (seq bigint path '$')) as listed) as given;

-- name: list_ready
-- The first jobs over all lanes, which were found lane by lane: no server can limit what a join reads of each lane.
select job.id, job.seq, lane.queue, lane.task, 'ready' as state, job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, null as started_at, null as finished_at, null as worker_id, null as reason,
       job.order_key, job.limit_key, state.excused
from {given_seqs}
straight_join holdfast_job as job force index (primary) on job.seq = given.seq
straight_join holdfast_lane as lane on lane.lane_id = job.lane_id
straight_join holdfast_ready as state force index (primary)
    on state.lane_id = job.lane_id and state.turn = job.turn and state.seq = job.seq
order by job.turn, job.seq;

-- part: minutes
cast(sum(enqueued) as signed) as enqueued,
       cast(sum(completed) as signed) as completed, cast(sum(retried) as signed) as retried,
       cast(sum(failed) as signed) as failed, cast(sum(cancelled) as signed) as cancelled,
       cast(sum(lost) as signed) as lost, cast(sum(run_time) as signed) as run_time
from (
    select minute_at, lane_id, enqueued, completed, retried, failed, cancelled, lost, run_time
    from holdfast_minute_count where minute_at >= {now} - :since
    union all
    select minute_at, lane_id, enqueued, completed, retried, failed, cancelled, lost, run_time
    from holdfast_tally where minute_at >= {now} - :since
) as counted
straight_join holdfast_lane as lane on lane.lane_id = counted.lane_id;

-- name: counts
select minute_at, lane.queue, lane.task, {minutes}
group by minute_at, lane.queue, lane.task
order by minute_at, lane.queue, lane.task;

-- name: count_sums
select min(minute_at) as minute_at, lane.queue, lane.task, {minutes}
group by lane.queue, lane.task
order by lane.queue, lane.task;

-- name: outstanding
with lanes as (
    select lane.lane_id, lane.queue, lane.task, queue.paused, coalesce(task.paused, 0) as task_paused
    from holdfast_lane as lane
    straight_join holdfast_queue as queue on queue.queue = lane.queue
    left join holdfast_task as task on task.task = lane.task
)
select 'ready' as state, lane.queue, lane.task, lane.paused or lane.task_paused as paused, state.number
from (select lane_id, count(*) as number from holdfast_ready group by lane_id) as state
straight_join lanes as lane on lane.lane_id = state.lane_id
union all
select case when state.retrying then 'retrying' else 'delayed' end, lane.queue, lane.task,
       lane.paused or lane.task_paused, count(*)
from holdfast_scheduled as state
straight_join holdfast_job as job on job.seq = state.seq
straight_join lanes as lane on lane.lane_id = job.lane_id
group by state.retrying, lane.queue, lane.task, lane.paused or lane.task_paused
union all
select 'running', lane.queue, lane.task, 0, count(*)
from holdfast_running as state straight_join holdfast_lane as lane on lane.lane_id = state.lane_id
group by lane.queue, lane.task
union all
-- Blocked jobs count under the state and the task of the head of their order key. A head that runs is not held back by
-- the pause of its task, and the next one may be of another task.
select waiting.state, waiting.queue, waiting.task, waiting.paused, cast(sum(waiting.number) as signed)
from (
    select case when running.seq is not null then 'behind running' when scheduled.seq is not null then 'delayed'
                else 'blocked' end as state,
           known.queue, lane.task, lane.paused or (lane.task_paused and running.seq is null) as paused, blocked.number
    from (select key_id, count(*) as number from holdfast_blocked group by key_id) as blocked
    straight_join holdfast_key_head as known on known.key_id = blocked.key_id
    straight_join holdfast_job as head on head.seq = known.head_seq
    straight_join lanes as lane on lane.lane_id = head.lane_id
    left join holdfast_running as running on running.seq = head.seq
    left join holdfast_scheduled as scheduled
        on scheduled.run_at = head.turn + head.priority * {priority_step} and scheduled.seq = head.seq
        and not scheduled.retrying
) as waiting
group by waiting.state, waiting.queue, waiting.task, waiting.paused
union all
-- Jobs that wait for a slot of their limit key.
select 'blocked', lane.queue, lane.task, lane.paused or lane.task_paused, cast(sum(state.number) as signed)
from (select key_id, count(*) as number from holdfast_blocked where key_id < 0 group by key_id) as state
straight_join holdfast_limit_key as known on known.key_id = state.key_id
straight_join lanes as lane on lane.lane_id = known.lane_id
group by lane.queue, lane.task, lane.paused or lane.task_paused
union all
-- Ended parents whose children are still to be decided.
select 'undecided', '', '', 0, count(*) from holdfast_parent_change having count(*) > 0;

-- name: jobs_ahead
-- Reads at most twice `limit` jobs of each lane: a count without a bound follows only where there are fewer.
select lane.queue, lane.task, (queue.paused or coalesce(task.paused, 0)) as paused, case
    when (
        select 1 from holdfast_ready as ready force index (primary)
        where ready.lane_id = lane.lane_id and (ready.turn < :turn or (ready.turn = :turn and ready.seq < :seq))
        limit 1 offset :limit
    ) is not null then :limit else (
        select count(*) from holdfast_ready as ready force index (primary)
        where ready.lane_id = lane.lane_id and (ready.turn < :turn or (ready.turn = :turn and ready.seq < :seq))
    ) end as number
from holdfast_lane as lane straight_join holdfast_queue as queue on queue.queue = lane.queue
left join holdfast_task as task on task.task = lane.task;

-- name: {known}s: queue, task
-- Counts at most `most` ready jobs of each lane, as `jobs_ahead` does, and as many scheduled, blocked and failed ones.
-- `is_cut`: a lane may have more ready jobs. `due`: of the job with the first turn, its turn plus its head start.
with standing as (
    select lane.lane_id, 'ready' as state, case
        when (
            select 1 from holdfast_ready as ready where ready.lane_id = lane.lane_id limit 1 offset :most
        ) is not null then :most
        else (select count(*) from holdfast_ready as ready where ready.lane_id = lane.lane_id)
    end as number
    from holdfast_lane as lane
    union all
    {standing_besides_ready}
),
fronts as (  -- the limit keeps the planner from a search of all jobs for each lane
    select lane.{known}, (
        select seq from holdfast_ready as ready where ready.lane_id = lane.lane_id
        order by ready.lane_id, ready.turn, ready.seq limit 1
    ) as seq
    from holdfast_lane as lane limit 1000000
),
firsts as (
    select fronts.{known}, job.turn + job.priority * {priority_step} as due,
           row_number() over (partition by fronts.{known} order by job.turn, job.seq) as number
    from fronts straight_join holdfast_job as job on job.seq = fronts.seq
),
counted as (
    select lane.{known}, {counted_standing} group by lane.{known}
)
select known.{known}, coalesce(named.paused, 0) as paused, {standing_columns}, {now} - firsts.due as due
from (select {known} from holdfast_lane union select {known} from holdfast_{known}) as known
left join holdfast_{known} as named on named.{known} = known.{known}
left join counted on counted.{known} = known.{known}
left join firsts on firsts.{known} = known.{known} and firsts.number = 1
order by known.{known};
