-- Limits of queues and tasks. A slot is a row of running: it is counted, however its lease stands.

-- name: limits
select 'queue' as kind, queue.queue as name, queue.max_running, queue.rate_jobs, queue.rate_span, queue.rate_burst,
       queue.rate_at, (
           select count(*) from {schema}.running as running join {schema}.lane as lane on lane.lane_id = running.lane_id
           where lane.queue = queue.queue
       ) as running, {now} as now
from {schema}.queue as queue where queue.max_running is not null or queue.rate_jobs is not null
union all
select 'task', task.task, task.max_running, task.rate_jobs, task.rate_span, task.rate_burst,
       task.rate_at, (
           select count(*) from {schema}.running as running join {schema}.lane as lane on lane.lane_id = running.lane_id
           where lane.task = task.task
       ), {now}
from {schema}.task as task where task.max_running is not null or task.rate_jobs is not null
union all
select 'key', task.task, task.key_max_running, task.key_rate_jobs, task.key_rate_span, task.key_rate_burst,
       0, (
           select count(*) from {schema}.running as running
           join {schema}.job as job on job.seq = running.seq join {schema}.lane as lane on lane.lane_id = running.lane_id
           where lane.task = task.task and job.limit_key is not null
       ), {now}
from {schema}.task as task where task.key_max_running is not null or task.key_rate_jobs is not null
order by 1, 2;

-- name: limit_queue
insert into {schema}.queue as known (queue, max_running, rate_jobs, rate_span, rate_burst)
values (:name, :max_running, :rate_jobs, :rate_span, :rate_burst)
on conflict (queue) do update
set max_running = excluded.max_running, rate_jobs = excluded.rate_jobs, rate_span = excluded.rate_span,
    rate_burst = excluded.rate_burst;

-- name: limit_task
insert into {schema}.task as known (task, max_running, rate_jobs, rate_span, rate_burst)
values (:name, :max_running, :rate_jobs, :rate_span, :rate_burst)
on conflict (task) do update
set max_running = excluded.max_running, rate_jobs = excluded.rate_jobs, rate_span = excluded.rate_span,
    rate_burst = excluded.rate_burst;

-- name: limit_key
-- The limit of a task for each of its keys.
insert into {schema}.task as known (task, key_max_running, key_rate_jobs, key_rate_span, key_rate_burst)
values (:name, :max_running, :rate_jobs, :rate_span, :rate_burst)
on conflict (task) do update
set key_max_running = excluded.key_max_running, key_rate_jobs = excluded.key_rate_jobs,
    key_rate_span = excluded.key_rate_span, key_rate_burst = excluded.key_rate_burst;

-- name: declare_key
insert into {schema}.task as known (task, key_max_running, key_rate_jobs, key_rate_span, key_rate_burst, key_declared)
values (:name, :max_running, :rate_jobs, :rate_span, :rate_burst, :declared)
on conflict (task) do update
set key_max_running = excluded.key_max_running, key_rate_jobs = excluded.key_rate_jobs,
    key_rate_span = excluded.key_rate_span, key_rate_burst = excluded.key_rate_burst,
    key_declared = excluded.key_declared
where coalesce(known.key_declared, '') <> coalesce(excluded.key_declared, '');

-- name: declare_queue
-- Changes something only if the declaration differs from the last one.
insert into {schema}.queue as known (queue, max_running, rate_jobs, rate_span, rate_burst, declared)
values (:name, :max_running, :rate_jobs, :rate_span, :rate_burst, :declared)
on conflict (queue) do update
set max_running = excluded.max_running, rate_jobs = excluded.rate_jobs, rate_span = excluded.rate_span,
    rate_burst = excluded.rate_burst, declared = excluded.declared
where coalesce(known.declared, '') <> coalesce(excluded.declared, '');

-- name: declare_task
insert into {schema}.task as known (task, max_running, rate_jobs, rate_span, rate_burst, declared)
values (:name, :max_running, :rate_jobs, :rate_span, :rate_burst, :declared)
on conflict (task) do update
set max_running = excluded.max_running, rate_jobs = excluded.rate_jobs, rate_span = excluded.rate_span,
    rate_burst = excluded.rate_burst, declared = excluded.declared
where coalesce(known.declared, '') <> coalesce(excluded.declared, '');

-- name: declared_limits
select 'queue' as kind, queue as name, declared from {schema}.queue where declared is not null
union all
select 'task', task, declared from {schema}.task where declared is not null
union all
select 'key', task, key_declared from {schema}.task where key_declared is not null;

-- name: spend_queue
update {schema}.queue set rate_at = :rate_at where queue = :name;

-- name: spend_task
update {schema}.task set rate_at = :rate_at where task = :name;
