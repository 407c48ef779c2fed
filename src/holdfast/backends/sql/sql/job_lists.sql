-- Lists and counts for operators; read only.

-- part: state_of_job
when running.seq is not null then 'running'
           when completed.seq is not null then 'completed'
           when failed.seq is not null then 'failed'
           when cancelled.seq is not null then 'cancelled'
           when ready.seq is not null then 'ready'
           when blocked.seq is not null then 'blocked'
           else 'scheduled';

-- name: job_view
-- Exactly one of the state rows exists.
select job.id::text as id, job.seq, lane.queue, lane.task,
       case
           {state_of_job}
       end as state,
       job.priority,
       coalesce(running.attempt, completed.attempt, failed.attempt, cancelled.attempt, ready.attempt,
                scheduled.attempt, blocked.attempt, 0) as attempt,
       job.max_attempts, job.enqueued_at, job.turn,
       coalesce(running.started_at, completed.started_at) as started_at,
       coalesce(completed.finished_at, failed.finished_at, cancelled.finished_at) as finished_at,
       coalesce(running.worker_id, completed.worker_id) as worker_id,
       coalesce(failed.reason, cancelled.reason) as reason,
       job.order_key, job.limit_key,
       coalesce(running.excused, failed.excused, cancelled.excused, ready.excused, scheduled.excused, blocked.excused)
           as excused
from {schema}.job as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
left join {schema}.running as running on running.seq = job.seq
left join {schema}.completed as completed on completed.seq = job.seq
left join {schema}.failed as failed on failed.seq = job.seq
left join {schema}.cancelled as cancelled on cancelled.seq = job.seq
left join {schema}.ready as ready on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
left join {schema}.scheduled as scheduled
    on scheduled.run_at = job.turn + job.priority::bigint * {priority_step} and scheduled.seq = job.seq
left join {schema}.blocked as blocked on blocked.seq = job.seq
where job.id = :id::uuid;

-- part: ended_or_waiting
left join lateral (select seq from {schema}.failed where seq = job.seq limit 1) as failed on true
left join lateral (select seq from {schema}.cancelled where seq = job.seq limit 1) as cancelled on true
left join lateral (
    select seq from {schema}.ready where lane_id = job.lane_id and turn = job.turn and seq = job.seq limit 1
) as ready on true
left join lateral (select seq from {schema}.blocked where seq = job.seq limit 1) as blocked on true;

-- name: job_states
-- As `job_view`, for many jobs: the subqueries keep the planner from joining whole tables.
select job.id::text as id,
       case
           {state_of_job}
       end as state,
       completed.result as result,
       job.seq as seq
from {schema}.job as job
left join lateral (select seq from {schema}.running where seq = job.seq limit 1) as running on true
left join lateral (select seq, result from {schema}.completed where seq = job.seq limit 1) as completed on true
{ended_or_waiting}
where job.id = any(:ids::uuid[]);

-- name: job_attempts
select attempt, fence, worker_id, started_at, ended_at, outcome, error_class, message, traceback, signature
from {schema}.attempt where seq = :seq order by attempt;

-- name: find_ids
select id::text as id from {schema}.job where id >= :first::uuid and id <= :last::uuid order by id limit :limit;

-- name: id_of
select id::text as id from {schema}.job where seq = :seq;

-- name: list_scheduled
select job.id::text as id, job.seq, lane.queue, lane.task, 'scheduled' as state, job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, null::bigint as started_at,
       null::bigint as finished_at, null::text as worker_id, null::text as reason, job.order_key, job.limit_key,
       state.excused as excused
from {schema}.scheduled as state
cross join lateral (select * from {schema}.job where seq = state.seq limit 1) as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
where (state.run_at, state.seq) > (:after_turn, :after_seq)
  and (:queue::text is null or lane.queue = :queue) and (:task::text is null or lane.task = :task)
order by state.run_at, state.seq limit :limit;

-- name: list_blocked
select job.id::text as id, job.seq, lane.queue, lane.task, 'blocked' as state, job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, null::bigint as started_at,
       null::bigint as finished_at, null::text as worker_id, null::text as reason, job.order_key, job.limit_key,
       state.excused as excused
from {schema}.blocked as state
cross join lateral (select * from {schema}.job where seq = state.seq limit 1) as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
where state.seq > :after_seq
  and (:queue::text is null or lane.queue = :queue) and (:task::text is null or lane.task = :task)
order by state.seq limit :limit;

-- part: newest_of_state
cross join lateral (select * from {schema}.job where seq = state.seq limit 1) as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
where state.seq < :before
  and (:queue::text is null or lane.queue = :queue) and (:task::text is null or lane.task = :task)
order by state.seq desc limit :limit;

-- name: list_running
select job.id::text as id, job.seq, lane.queue, lane.task, 'running' as state, job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, state.started_at, null::bigint as finished_at, state.worker_id,
       null::text as reason, job.order_key, job.limit_key,
       state.excused as excused
from {schema}.running as state
{newest_of_state};

-- name: list_completed
select job.id::text as id, job.seq, lane.queue, lane.task, 'completed' as state, job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, state.started_at, state.finished_at, state.worker_id,
       null::text as reason, job.order_key, job.limit_key,
       null::bigint as excused
from {schema}.completed as state
{newest_of_state};

-- name: list_{ended}: failed, cancelled
select job.id::text as id, job.seq, lane.queue, lane.task, '{ended}' as state, job.priority, state.attempt, job.max_attempts,
       job.enqueued_at, job.turn, null::bigint as started_at, state.finished_at,
       null::text as worker_id, state.reason, job.order_key, job.limit_key,
       state.excused
from {schema}.{ended} as state
{newest_of_state};

-- name: leases
select job.id::text as job_id, running.seq, running.fence, lane.queue, lane.task, running.worker_id, running.attempt,
       running.started_at, running.lease_until - {now} as expires_in, running.isolated, running.cancel_asked, running.percent,
       running.note
from {schema}.running as running
cross join lateral (select id, lane_id from {schema}.job where seq = running.seq limit 1) as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
where (:seq::bigint is null or running.seq = :seq) and (not :expired_only or running.lease_until <= {now})
order by running.lease_until, running.seq limit :limit;

-- name: workers
select heartbeat, tasks, started_at, {now} - heartbeat_at as silent, coalesce(held.number, 0) as running
from {schema}.worker as worker
left join (
    select worker_id, count(*) as number from {schema}.running group by worker_id
) as held on held.worker_id = worker.worker_id
order by started_at, worker.worker_id;

-- name: waiting_tasks
-- The limit keeps the planner from joining the whole of ready, and the order from reading it: it is that of the index.
select lane.queue, lane.task, (queue.paused or coalesce(task.paused, false)) as paused
from {schema}.lane as lane join {schema}.queue as queue on queue.queue = lane.queue
left join {schema}.task as task on task.task = lane.task
where (
    select 1 from {schema}.ready as ready where ready.lane_id = lane.lane_id
    order by ready.lane_id, ready.turn, ready.seq limit 1
) is not null
order by lane.queue, lane.task;

-- name: job_facts
select {now} as now, queue.paused, coalesce(task.paused, false) as is_task_paused, head.id::text as head_id
from {schema}.job as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
join {schema}.queue as queue on queue.queue = lane.queue
left join {schema}.task as task on task.task = lane.task
left join lateral (
    select head_seq from {schema}.key_head where queue = lane.queue and order_key = job.order_key limit 1
) as keys on true
left join lateral (select id from {schema}.job where seq = keys.head_seq limit 1) as head on true
where job.id = :id::uuid;

-- name: unfinished_parents
select job.id::text as id, job.seq, lane.task,
       (select 1 from {schema}.running as state where state.seq = job.seq limit 1) is not null as is_running
from {schema}.parent_link as link
join {schema}.job as job on job.seq = link.parent_seq
join {schema}.lane as lane on lane.lane_id = job.lane_id
where link.child_seq = :seq
  and (select 1 from {schema}.completed as parent where parent.seq = link.parent_seq limit 1) is null
  and (select 1 from {schema}.failed as parent where parent.seq = link.parent_seq limit 1) is null
  and (select 1 from {schema}.cancelled as parent where parent.seq = link.parent_seq limit 1) is null
order by link.place limit :limit;

-- name: jobs_ahead
select lane.queue, lane.task, (queue.paused or coalesce(task.paused, false)) as paused, (
    select count(*) from (
        select 1 from {schema}.ready as ready
        where ready.lane_id = lane.lane_id and (ready.turn, ready.seq) < (:turn::bigint, :seq::bigint)
        order by ready.turn, ready.seq limit :limit
    ) as earlier
) as number
from {schema}.lane as lane join {schema}.queue as queue on queue.queue = lane.queue
left join {schema}.task as task on task.task = lane.task;

-- name: depth
select count(*) as number from {schema}.lane as lane
join {schema}.ready as ready on ready.lane_id = lane.lane_id
where lane.queue = :queue;

-- part: standing_besides_ready
select lane_id, 'running', count(*) from {schema}.running group by lane_id
    union all
    select job.lane_id, 'scheduled', count(*) from (select seq from {schema}.scheduled limit :most) as state
    cross join lateral (select lane_id from {schema}.job where seq = state.seq limit 1) as job group by job.lane_id
    union all
    select job.lane_id, 'blocked', count(*) from (select seq from {schema}.blocked limit :most) as state
    cross join lateral (select lane_id from {schema}.job where seq = state.seq limit 1) as job group by job.lane_id
    union all
    select job.lane_id, 'failed', count(*) from (select seq from {schema}.failed limit :most) as state
    cross join lateral (select lane_id from {schema}.job where seq = state.seq limit 1) as job group by job.lane_id;

-- part: counted_standing
sum(case when state = 'ready' then number end) as ready,
           sum(case when state = 'running' then number end) as running,
           sum(case when state = 'scheduled' then number end) as scheduled,
           sum(case when state = 'blocked' then number end) as blocked,
           sum(case when state = 'failed' then number end) as failed,
           max(case when state = 'ready' and number >= :most then 1 else 0 end) as is_cut
    from standing join {schema}.lane as lane on lane.lane_id = standing.lane_id;

-- part: standing_columns
coalesce(ready, 0)::bigint as ready, coalesce(running, 0)::bigint as running,
       coalesce(scheduled, 0)::bigint as scheduled, coalesce(blocked, 0)::bigint as blocked,
       coalesce(failed, 0)::bigint as failed, coalesce(is_cut, 0)::bigint as is_cut;

-- name: {known}s: queue, task
-- Reads at most `most` ready jobs of each lane, and as many scheduled, blocked and failed ones. `is_cut`: a lane may have
-- more ready jobs. `due`: of the job with the first turn, its turn plus its head start. A queue or a task is known by its
-- first job, or by its first pause.
with standing as (
    select lane.lane_id, 'ready' as state, (
        select count(*) from (
            select 1 from {schema}.ready where lane_id = lane.lane_id order by turn, seq limit :most
        ) as front
    ) as number
    from {schema}.lane as lane
    union all
    {standing_besides_ready}
),
counted as (
    select lane.{known}, {counted_standing} group by lane.{known}
)
select known.{known}, coalesce(named.paused, false) as paused, {standing_columns}, {now} - (
           select job.turn + job.priority::bigint * {priority_step}
           from {schema}.lane as lane cross join lateral (
               select turn, seq, priority from {schema}.job
               where seq = (select seq from {schema}.ready where lane_id = lane.lane_id order by turn, seq limit 1) limit 1
           ) as job
           where lane.{known} = known.{known} order by job.turn, job.seq limit 1
       ) as due
from (select {known} from {schema}.lane union select {known} from {schema}.{known}) as known
left join {schema}.{known} as named on named.{known} = known.{known}
left join counted on counted.{known} = known.{known}
order by known.{known};
