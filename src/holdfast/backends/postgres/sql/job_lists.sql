-- Lists and counts for operators; read only.

-- name: job_body
select job.payload, job.headers, job.timeout, completed.result, job.unique_key, completed.fence
from {schema}.job as job left join {schema}.completed as completed on completed.seq = job.seq
where job.seq = %(seq)s;

-- name: list_ready
-- The lanes, each in claim order, merged.
select job.id::text as id, job.seq, next.queue, next.task, 'ready' as state, job.priority, next.attempt, job.max_attempts,
       job.enqueued_at, job.turn, null::bigint as started_at,
       null::bigint as finished_at, null::text as worker_id, null::text as reason, job.order_key, job.limit_key,
       next.excused
from (
    select lane.queue, lane.task, state.turn, state.seq, state.attempt, state.excused
    from {schema}.lane as lane cross join lateral (
        select turn, seq, attempt, excused from {schema}.ready
        where lane_id = lane.lane_id and (turn, seq) > (%(after_turn)s, %(after_seq)s)
        order by turn, seq limit %(limit)s
    ) as state
    where (%(queue)s::text is null or lane.queue = %(queue)s) and (%(task)s::text is null or lane.task = %(task)s)
    order by state.turn, state.seq limit %(limit)s
) as next
cross join lateral (select * from {schema}.job where seq = next.seq limit 1) as job
order by next.turn, next.seq;

-- name: counts
select minute_at, lane.queue, lane.task, sum(enqueued)::bigint as enqueued, sum(completed)::bigint as completed,
       sum(retried)::bigint as retried, sum(failed)::bigint as failed, sum(cancelled)::bigint as cancelled,
       sum(lost)::bigint as lost, sum(run_time)::bigint as run_time
from (
    select * from {schema}.minute_count where minute_at >= {now} - %(since)s
    union all
    select * from {schema}.tally where minute_at >= {now} - %(since)s
) as counted
join {schema}.lane as lane on lane.lane_id = counted.lane_id
group by minute_at, lane.queue, lane.task
order by minute_at, lane.queue, lane.task;

-- name: count_sums
select min(minute_at) as minute_at, lane.queue, lane.task, sum(enqueued)::bigint as enqueued,
       sum(completed)::bigint as completed, sum(retried)::bigint as retried, sum(failed)::bigint as failed,
       sum(cancelled)::bigint as cancelled, sum(lost)::bigint as lost, sum(run_time)::bigint as run_time
from (
    select * from {schema}.minute_count where minute_at >= {now} - %(since)s
    union all
    select * from {schema}.tally where minute_at >= {now} - %(since)s
) as counted
join {schema}.lane as lane on lane.lane_id = counted.lane_id
group by lane.queue, lane.task
order by lane.queue, lane.task;

-- name: outstanding
with lanes as materialized (
    select lane.lane_id, lane.queue, lane.task, queue.paused, coalesce(task.paused, false) as task_paused
    from {schema}.lane as lane
    join {schema}.queue as queue on queue.queue = lane.queue
    left join {schema}.task as task on task.task = lane.task
)
select 'ready' as state, lane.queue, lane.task, lane.paused or lane.task_paused as paused, count(*) as number
from {schema}.ready as state join lanes as lane on lane.lane_id = state.lane_id
group by lane.queue, lane.task, lane.paused or lane.task_paused
union all
select case when state.retrying then 'retrying' else 'delayed' end, lane.queue, lane.task,
       lane.paused or lane.task_paused, count(*)
from {schema}.scheduled as state
cross join lateral (select lane_id from {schema}.job where seq = state.seq limit 1) as job
join lanes as lane on lane.lane_id = job.lane_id
group by state.retrying, lane.queue, lane.task, lane.paused or lane.task_paused
union all
select 'running', lane.queue, lane.task, false, count(*)
from {schema}.running as state join {schema}.lane as lane on lane.lane_id = state.lane_id
group by lane.queue, lane.task
union all
-- Blocked jobs count under the state and the task of the head of their order key. A head that runs is not held back by
-- the pause of its task, and the next one may be of another task.
select case when running.seq is not null then 'behind running' when scheduled.seq is not null then 'delayed'
            else 'blocked' end,
       keys.queue, lane.task, lane.paused or (lane.task_paused and running.seq is null), sum(state.number)::bigint
from (select key_id, count(*) as number from {schema}.blocked group by key_id) as state
cross join lateral (select queue, head_seq from {schema}.key_head where key_id = state.key_id limit 1) as keys
cross join lateral (
    select seq, lane_id, turn, priority from {schema}.job where seq = keys.head_seq limit 1
) as head
join lanes as lane on lane.lane_id = head.lane_id
left join lateral (select seq from {schema}.running where seq = head.seq limit 1) as running on true
left join lateral (
    select seq from {schema}.scheduled
    where run_at = head.turn + head.priority::bigint * {priority_step} and seq = head.seq and not retrying limit 1
) as scheduled on true
group by 1, 2, 3, 4
union all
-- Jobs that wait for a slot of their limit key.
select 'blocked', lane.queue, lane.task, lane.paused or lane.task_paused, sum(state.number)::bigint
from (select key_id, count(*) as number from {schema}.blocked where key_id < 0 group by key_id) as state
cross join lateral (select lane_id from {schema}.limit_key where key_id = state.key_id limit 1) as keys
join lanes as lane on lane.lane_id = keys.lane_id
group by 2, 3, 4
union all
-- Ended parents whose children are still to be decided.
select 'undecided', '', '', false, count(*) from {schema}.parent_change having count(*) > 0;

-- name: server_facts
select fact, value from (values
    ('version', current_setting('server_version')),
    ('synchronous_commit', current_setting('synchronous_commit')),
    ('fsync', current_setting('fsync')),
    ('max_connections', current_setting('max_connections')),
    ('default_transaction_isolation', current_setting('default_transaction_isolation')),
    ('size', pg_size_pretty(coalesce((
        select sum(pg_total_relation_size(c.oid)) from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
        where n.nspname = {schema_name} and c.relkind = 'r'
    ), 0))),
    ('oldest_snapshot_age', coalesce((
        select max(age(backend_xmin)) from pg_stat_activity where backend_xmin is not null
    ), 0)::text),
    ('now_us', ({now})::text)
) as facts (fact, value);
