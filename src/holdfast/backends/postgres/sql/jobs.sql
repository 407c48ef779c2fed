-- Enqueue, claim and complete jobs. Every statement that writes under a lease carries its fence.
--
-- Plans must not depend on statistics. Rows are found through `cross join lateral (… limit 1)`, which is a nested loop
-- over the primary key whatever the planner estimates, and moved by `= any(array(select …))`, which it estimates at ten
-- rows at most: for a long literal array it might prefer to scan the whole table.

-- name: add_lanes
with given as materialized (
    select distinct queue, task from unnest(%(queues)s::text[], %(tasks)s::text[]) as given (queue, task)
),
added_queue as (
    insert into {schema}.queue (queue) select distinct queue from given order by queue on conflict (queue) do nothing
),
added as (
    insert into {schema}.lane (queue, task) select queue, task from given order by queue, task
    on conflict (queue, task) do nothing
    returning lane_id, queue, task
)
select lane_id, queue, task from added
union all
select lane.lane_id, lane.queue, lane.task
from given cross join lateral (
    select lane_id, queue, task from {schema}.lane where queue = given.queue and task = given.task limit 1
) as lane;

-- part: place_made
readied as (
    insert into {schema}.ready (lane_id, turn, seq, payload_bytes)
    select lane_id, turn, seq, payload_bytes from made cross join instant where due_at <= now
),
delayed as (
    insert into {schema}.scheduled (run_at, seq, retrying)
    select due_at, seq, false from made cross join instant where due_at > now
),
counted as (
    insert into {schema}.tally (minute_at, lane_id, enqueued)
    select now - now %% {minute}, lane_id, count(*) from made cross join instant group by now, lane_id
)
select id::text, lane_id, turn, seq, due_at <= now from made cross join instant;

-- part: place_one_made
readied as (
    insert into {schema}.ready (lane_id, turn, seq, payload_bytes)
    select lane_id, turn, seq, payload_bytes from made cross join instant where due_at <= now
),
delayed as (
    insert into {schema}.scheduled (run_at, seq, retrying)
    select due_at, seq, false from made cross join instant where due_at > now
),
counted as (
    insert into {schema}.tally (minute_at, lane_id, enqueued)
    select now - now %% {minute}, lane_id, 1 from made cross join instant
)
select id::text, lane_id, turn, seq, due_at <= now from made cross join instant;

-- name: enqueue
-- The insert into job comes first: it waits for a concurrent transaction that inserts the same id, and then leaves the
-- existing job unchanged, in any state.
with instant as materialized (select {now} as now),
given as materialized (
    select given.*, instant.now as now,
           coalesce(given.run_at, instant.now + coalesce(given.delay, 0)) as due_at
    from instant cross join unnest(
        %(ids)s::uuid[], %(lane_ids)s::integer[], %(payloads)s::text[], %(headers)s::text[],
        %(priorities)s::integer[], %(max_attempts)s::integer[], %(timeouts)s::double precision[],
        %(run_ats)s::bigint[], %(delays)s::bigint[], %(unique_keys)s::text[], %(unique_scopes)s::text[]
    ) with ordinality as given (
        id, lane_id, payload, headers, priority, max_attempts, timeout, run_at, delay, unique_key, unique_scope, place
    )
),
made as (
    insert into {schema}.job (
        id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, payload_bytes,
        unique_key, unique_scope
    )
    select id, lane_id, payload, headers, priority, max_attempts, timeout, now,
           due_at - priority::bigint * {priority_step}, octet_length(payload), unique_key, unique_scope
    from given order by place
    on conflict (id) do nothing
    returning seq, id, lane_id, turn, payload_bytes, turn + priority::bigint * {priority_step} as due_at
),
{place_made};

-- name: enqueue_one
-- The same for a single job without a unique key, and without arrays: its parameters take the driver less time.
with instant as materialized (select {now} as now),
made as (
    insert into {schema}.job (
        id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, payload_bytes
    )
    select %(id)s::uuid, %(lane_id)s, %(payload)s, %(headers)s, %(priority)s, %(max_attempts)s,
           %(timeout)s::double precision, now,
           coalesce(%(run_at)s::bigint, now + coalesce(%(delay)s::bigint, 0)) - %(priority)s::bigint * {priority_step},
           octet_length(%(payload)s::text)
    from instant
    on conflict (id) do nothing
    returning seq, id, lane_id, turn, payload_bytes, turn + priority::bigint * {priority_step} as due_at
),
{place_one_made};

-- name: reserve_seqs
select {now}, array(select nextval('{schema}.job_seq') from generate_series(1, %(number)s));

-- name: copy_jobs
copy {schema}.job (
    seq, id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, payload_bytes,
    unique_key, unique_scope
) from stdin (format binary);

-- name: copy_ready
copy {schema}.ready (lane_id, turn, seq, payload_bytes) from stdin (format binary);

-- name: copy_scheduled
copy {schema}.scheduled (run_at, seq, retrying) from stdin (format binary);

-- part: lease_measured
holder as materialized (
    select nextval('{schema}.fence') as fence, {now} as now where exists (select 1 from measured)
),
gone as (
    delete from {schema}.ready
    where ctid = any(array(select place from measured where bytes <= %(max_bytes)s or number = 1))
    returning lane_id, turn, seq, attempt + 1 as attempt, excused, interrupted, lost, followed
),
leased as (
    insert into {schema}.running (
        seq, lane_id, fence, worker_id, lease_until, lease_span, started_at, attempt, excused, interrupted, lost,
        isolated, followed
    )
    select seq, lane_id, (select fence from holder), %(worker_id)s, (select now + %(span)s from holder), %(span)s,
           (select now from holder), attempt, excused, interrupted, lost, lost > 0 and %(isolates)s, followed
    from gone
);

-- name: claim
-- `front`: the number of jobs in each lane among the first over all lanes, including those that other sessions are
-- claiming. `locked`: that many jobs of each lane, skipping those of other sessions; a single lane needs no merge. So
-- no more rows are locked than are wanted. `measured`: running totals cost a twentieth of the statement, so they are
-- made only if all payloads together are too large.
--
-- The fence is the next value of a sequence, taken after the statement's snapshot. A job that this statement can claim
-- was put into ready by a transaction that the snapshot sees, so its previous claim took its fence earlier: for one
-- job, a later claim always has the larger fence. If a row leaves ready and returns meanwhile, it is a new row,
-- invisible here.
--
-- A lane whose limit is reached, by this snapshot, is left out: that costs as much as there are lanes and leases,
-- however many jobs wait in it; leases are counted up to the limit. If a lane with a limit has jobs and room, nothing is
-- claimed: only `claim_shares`, which runs under the locks of the limits, knows how much. So it is for a lane whose task
-- has a limit per key: its jobs may all be claimed, but not ahead of the time at which they start. The last row says
-- both, by its number of -2 or -1. The jobs come in any order: the client sorts them in a third of the time.
with known as materialized (
    select lane.lane_id, lane.queue, lane.task,
           coalesce(floor.turn, {lowest}) as floor_turn, coalesce(floor.seq, 0) as floor_seq,
           num_nonnulls(
               queue.max_running, queue.rate_jobs, task.max_running, task.rate_jobs, task.key_max_running,
               task.key_rate_jobs
           ) > 0 as is_limited
    from {schema}.lane as lane
    join {schema}.queue as queue on queue.queue = lane.queue
    left join {schema}.task as task on task.task = lane.task
    left join unnest(%(floor_lanes)s::integer[], %(floor_turns)s::bigint[], %(floor_seqs)s::bigint[])
        as floor (lane_id, turn, seq) on floor.lane_id = lane.lane_id
    where not queue.paused and task.paused is not true and lane.task = any(%(tasks)s::text[])
      and (%(queues)s::text[] is null or lane.queue = any(%(queues)s::text[]))
),
limited as materialized (
    select known.lane_id,
           (
               select seq from {schema}.ready where lane_id = known.lane_id order by turn, seq limit 1
           ) is not null as has_jobs,
           (queue.max_running is not null and queue.max_running <= (
               select count(*) from (
                   select 1 from {schema}.running as running
                   join {schema}.lane as lane on lane.lane_id = running.lane_id where lane.queue = known.queue
                   limit queue.max_running
               ) as counted
           )) or (task.max_running is not null and task.max_running <= (
               select count(*) from (
                   select 1 from {schema}.running as running
                   join {schema}.lane as lane on lane.lane_id = running.lane_id where lane.task = known.task
                   limit task.max_running
               ) as counted
           )) as is_full,
           greatest(
               queue.rate_at - {now} - (queue.rate_burst - 1) * ((queue.rate_span + queue.rate_jobs - 1) / queue.rate_jobs),
               task.rate_at - {now} - (task.rate_burst - 1) * ((task.rate_span + task.rate_jobs - 1) / task.rate_jobs)
           ) as wait
    from known
    join {schema}.queue as queue on queue.queue = known.queue
    left join {schema}.task as task on task.task = known.task
    where known.is_limited
),
barred as materialized (
    select exists (
        select 1 from limited where has_jobs and not is_full and coalesce(wait, 0) <= 0
    ) as is_barred
),
lanes as materialized (
    select lane_id, queue, task, floor_turn, floor_seq from known
    where not is_limited and not (select is_barred from barred)
),
front as materialized (
    select lane_id, floor_turn, floor_seq, %(limit)s::bigint as share from lanes where (select count(*) from lanes) = 1
    union all
    select lane_id, floor_turn, floor_seq, count(*)
    from (
        select lanes.lane_id, lanes.floor_turn, lanes.floor_seq
        from lanes cross join lateral (
            select turn, seq from {schema}.ready
            where lane_id = lanes.lane_id and (turn, seq) >= (lanes.floor_turn, lanes.floor_seq)
            order by turn, seq limit %(limit)s
        ) as next
        where (select count(*) from lanes) > 1
        order by next.turn, next.seq limit %(limit)s
    ) as first
    group by lane_id, floor_turn, floor_seq
),
locked as materialized (
    select next.place, next.payload_bytes, next.turn, next.seq
    from front cross join lateral (
        select ctid as place, payload_bytes, turn, seq from {schema}.ready
        where lane_id = front.lane_id and (turn, seq) >= (front.floor_turn, front.floor_seq)
        order by turn, seq limit front.share
        for update skip locked
    ) as next
),
weighed as materialized (select sum(payload_bytes) as bytes, count(*) as number from locked),
measured as materialized (
    select place, 0 as bytes, 0 as number from locked where (select bytes from weighed) <= %(max_bytes)s
    union all
    select place, sum(payload_bytes) over running_total, row_number() over running_total
    from locked where (select bytes from weighed) > %(max_bytes)s
    window running_total as (order by turn, seq)
),
{lease_measured}
select job.id, gone.seq, lanes.queue, lanes.task, job.payload, job.headers, job.priority, job.max_attempts,
       job.timeout, job.enqueued_at, gone.turn, gone.attempt, gone.excused, gone.interrupted, gone.lost,
       (select fence from holder), job.order_key, gone.lane_id, (select number from weighed)
from gone
join lanes on lanes.lane_id = gone.lane_id
cross join lateral (
    select id::text, payload, headers, priority, max_attempts, timeout, enqueued_at, order_key
    from {schema}.job where seq = gone.seq limit 1
) as job
union all
select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, (
           select min(wait) from limited where has_jobs and not is_full
       ), null, null, case when is_barred then -1 else -2 end
from barred where exists (select 1 from limited where has_jobs);

-- name: lock_queue_limits
-- The limits of queues that this worker's claims may concern, and that no other session is claiming under: those are
-- skipped, so that no claim waits for another.
select queue from {schema}.queue
where (max_running is not null or rate_jobs is not null)
  and (%(queues)s::text[] is null or queue = any(%(queues)s::text[]))
order by queue for update skip locked;

-- name: lock_task_limits
select task from {schema}.task
where (max_running is not null or rate_jobs is not null) and task = any(%(tasks)s::text[])
order by task for update skip locked;

-- name: claim_limits
-- As `limits`, for claims: leases are counted up to the limit.
select 'queue' as kind, queue.queue as name, queue.max_running, queue.rate_jobs, queue.rate_span, queue.rate_burst,
       queue.rate_at, (
           select count(*) from (
               select 1 from {schema}.running as running
               join {schema}.lane as lane on lane.lane_id = running.lane_id where lane.queue = queue.queue
               limit coalesce(queue.max_running, 0)
           ) as counted
       ) as running, {now} as now
from {schema}.queue as queue where queue.max_running is not null or queue.rate_jobs is not null
union all
select 'task', task.task, task.max_running, task.rate_jobs, task.rate_span, task.rate_burst,
       task.rate_at, (
           select count(*) from (
               select 1 from {schema}.running as running
               join {schema}.lane as lane on lane.lane_id = running.lane_id where lane.task = task.task
               limit coalesce(task.max_running, 0)
           ) as counted
       ), {now}
from {schema}.task as task where task.max_running is not null or task.rate_jobs is not null
union all
select 'key', task.task, task.key_max_running, task.key_rate_jobs, task.key_rate_span, task.key_rate_burst, 0, 0, {now}
from {schema}.task as task where task.key_max_running is not null or task.key_rate_jobs is not null
order by 1, 2;

-- name: lane_fronts
-- The first jobs of each lane, from which `share_out` chooses.
select lane.lane_id, lane.queue, lane.task, next.turn, next.seq
from {schema}.lane as lane
join {schema}.queue as queue on queue.queue = lane.queue
left join {schema}.task as task on task.task = lane.task
cross join lateral (
    select turn, seq from {schema}.ready where lane_id = lane.lane_id order by turn, seq limit %(limit)s
) as next
where not queue.paused and task.paused is not true and lane.task = any(%(tasks)s::text[])
  and (%(queues)s::text[] is null or lane.queue = any(%(queues)s::text[]));

-- name: claim_shares
-- As `claim`, of given lanes, each with the number of jobs to claim from its front.
with front as materialized (
    select given.lane_id, given.share, lane.queue, lane.task
    from unnest(%(lane_ids)s::integer[], %(shares)s::integer[]) as given (lane_id, share)
    join {schema}.lane as lane on lane.lane_id = given.lane_id
),
locked as materialized (
    select next.place, next.payload_bytes, next.turn, next.seq
    from front cross join lateral (
        select ctid as place, payload_bytes, turn, seq from {schema}.ready
        where lane_id = front.lane_id
        order by turn, seq limit front.share
        for update skip locked
    ) as next
),
measured as materialized (
    select place, sum(payload_bytes) over running_total as bytes, row_number() over running_total as number
    from locked window running_total as (order by turn, seq)
),
{lease_measured}
select job.id, gone.seq, front.queue, front.task, job.payload, job.headers, job.priority, job.max_attempts,
       job.timeout, job.enqueued_at, gone.turn, gone.attempt, gone.excused, gone.interrupted, gone.lost, holder.fence,
       job.order_key, gone.lane_id, (select count(*) from measured)
from gone cross join holder
join front on front.lane_id = gone.lane_id
cross join lateral (
    select id::text, payload, headers, priority, max_attempts, timeout, enqueued_at, order_key
    from {schema}.job where seq = gone.seq limit 1
) as job
order by gone.turn, gone.seq;

-- part: completions_counted
counted as (
    insert into {schema}.tally (minute_at, lane_id, completed, run_time)
    select now - now %% {minute}, lane_id, count(*), sum(now - started_at) from gone cross join instant
    group by now, lane_id
);

-- name: complete
-- The fence of a running row never changes, so the delete finds exactly the rows that `held` matched in the snapshot,
-- if they still exist. Followed jobs, heads of order keys and parents, are completed only with the parameter `followed`,
-- in a transaction that settles what follows; without it they are left as they are. So is one that is followed only
-- since the snapshot: the delete waits for the transaction that marks it and reads the mark. `patience` is for how long
-- it waits, in milliseconds; set here, it takes no statement more. One row of `completed` gets the whole batch: see
-- `old_completed`.
with held as materialized (
    select running.seq, running.followed, given.fence, given.result
    from unnest(%(seqs)s::bigint[], %(fences)s::bigint[], %(results)s::text[]) as given (seq, fence, result)
    cross join lateral (
        select seq, followed from {schema}.running where seq = given.seq and fence = given.fence limit 1
    ) as running
    where %(patience)s::text is null or (select set_config('lock_timeout', %(patience)s::text, true)) is not null
),
gone as (
    delete from {schema}.running
    where seq = any(array(select seq from held where %(followed)s::boolean or not followed))
      and (%(followed)s::boolean or not followed)
    returning seq, lane_id, fence, worker_id, attempt, started_at, followed
),
instant as materialized (select {now} as now),
written as (
    insert into {schema}.completed (seq, fence, worker_id, attempt, started_at, finished_at, result, batch)
    select gone.seq, gone.fence, gone.worker_id, gone.attempt, gone.started_at, instant.now, held.result,
           case when gone.seq = (select seq from gone limit 1) then %(seqs)s::bigint[] end
    from gone cross join instant join held on held.seq = gone.seq
),
{completions_counted}
-- One result row for all jobs, usually without a list: reading one row per job took a tenth of the client's time.
select (select count(*) from gone),
       case when (select count(*) from gone) < %(number)s::bigint then array(select seq from gone) end,
       case when (select count(*) from gone) < %(number)s::bigint then array(select fence from gone) end,
       array(select seq from gone where followed);

-- name: complete_or_fail
-- The end of a handler's transaction, sent together with its COMMIT: if the lease is not held or another job follows this
-- one, the statement must fail. Plain SQL cannot raise an error, so it casts a text that is no integer.
with gone as (
    delete from {schema}.running where seq = %(seq)s and fence = %(fence)s and not followed
    returning seq, lane_id, fence, worker_id, attempt, started_at, {now} as now
),
written as (
    insert into {schema}.completed (seq, fence, worker_id, attempt, started_at, finished_at, result, batch)
    select seq, fence, worker_id, attempt, started_at, now, %(result)s::text, array[seq] from gone
),
counted as (
    insert into {schema}.tally (minute_at, lane_id, completed, run_time)
    select now - now %% {minute}, lane_id, 1, now - started_at from gone
)
select case when count(*) = 1 then 1 else ('holdfast: stale lease, ' || count(*) || ' rows')::integer end from gone;

-- name: complete_all_or_fail
-- The same for many jobs, whose rows this transaction has locked. A row that was deleted under another fence than the
-- given one is not written, so the number is wrong and all is rolled back. `plan_by_index` goes before it.
with given as materialized (
    select seq, fence, result
    from unnest(%(seqs)s::bigint[], %(fences)s::bigint[], %(results)s::text[]) as given (seq, fence, result)
),
gone as (
    delete from {schema}.running where seq = any(array(select seq from given)) and not followed
    returning seq, lane_id, fence, worker_id, attempt, started_at
),
instant as materialized (select {now} as now),
written as (
    insert into {schema}.completed (seq, fence, worker_id, attempt, started_at, finished_at, result, batch)
    select gone.seq, gone.fence, gone.worker_id, gone.attempt, gone.started_at, instant.now, given.result,
           case when gone.seq = (select seq from given limit 1) then %(seqs)s::bigint[] end
    from gone cross join instant join given on given.seq = gone.seq and gone.fence = given.fence
    returning 1
),
{completions_counted}
select case when count(*) = cardinality(%(seqs)s::bigint[]) then 1
            else ('holdfast: stale lease, ' || count(*) || ' rows')::integer end
from written;

-- name: complete_claimed_or_fail
-- The same for locked jobs of one claim that have no results: with a single fence there are no pairs to compare, so
-- nothing is joined.
with gone as (
    delete from {schema}.running where seq = any(%(seqs)s::bigint[]) and fence = %(fence)s and not followed
    returning seq, lane_id, fence, worker_id, attempt, started_at
),
instant as materialized (select {now} as now),
written as (
    insert into {schema}.completed (seq, fence, worker_id, attempt, started_at, finished_at, batch)
    select seq, fence, worker_id, attempt, started_at, (select now from instant),
           case when seq = (%(seqs)s::bigint[])[1] then %(seqs)s::bigint[] end
    from gone
),
{completions_counted}
select case when count(*) = cardinality(%(seqs)s::bigint[]) then 1
            else ('holdfast: stale lease, ' || count(*) || ' rows')::integer end
from gone;

-- name: plan_by_index
-- Until the transaction ends. In a handler's session the planner is set as the database says; for a small table it would
-- compare every row with every lease, and keep that plan.
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true);
