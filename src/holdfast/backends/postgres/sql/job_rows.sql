-- The rows of jobs: lock them, end them, move them from state to state. Writes under a lease change only rows that the
-- same transaction has locked by their fence.
--
-- Lists are passed as arrays, one per column. jobs.sql explains the query plans.

-- name: lock_leases
-- Waits for transactions that have locked a row. The caller sorts the leases, so that two such calls cannot deadlock.
select job.id, running.seq, running.lane_id, job.queue, job.task, job.order_key, job.limit_key, 'running' as state,
       job.priority,
       job.max_attempts, job.turn, running.attempt, running.excused, running.interrupted, running.lost, running.followed,
       false as retrying, running.isolated, running.cancel_asked, running.cancel_reason, running.fence, running.worker_id,
       running.started_at, running.lease_span, null::bigint as finished_at, null::text as reason, 0::bigint as held,
       {now} as token
from unnest(%(seqs)s::bigint[], %(fences)s::bigint[]) with ordinality as given (seq, fence, place)
cross join lateral (
    select seq, lane_id, fence, worker_id, started_at, lease_span, attempt, excused, interrupted, lost, isolated, followed,
           cancel_asked, cancel_reason
    from {schema}.running where seq = given.seq and fence = given.fence limit 1
    for update
) as running
cross join lateral (
    select id::text, queue, task, order_key, limit_key, priority, max_attempts, turn
    from {schema}.job join {schema}.lane on lane.lane_id = job.lane_id where seq = running.seq limit 1
) as job
order by given.place;

-- name: lock_expired
-- Skips rows that a handler's transaction has locked: their holder is active. The leases of a worker are counted in the
-- same snapshot: of two concurrent calls that rescue jobs of one worker, each also counts those that the other takes.
with expired as materialized (
    select seq, lane_id, fence, worker_id, started_at, lease_span, attempt, excused, interrupted, lost, isolated, followed,
           cancel_asked, cancel_reason
    from {schema}.running
    where lease_until <= {now} and (%(longest)s::bigint is null or lease_span <= %(longest)s::bigint)
    order by lease_until limit %(limit)s
    for update skip locked
),
held as materialized (
    select worker_id, count(*) as held from {schema}.running
    where worker_id = any(array(select worker_id from expired)) group by worker_id
)
select job.id, expired.seq, expired.lane_id, job.queue, job.task, job.order_key, job.limit_key, 'running' as state,
       job.priority,
       job.max_attempts, job.turn, expired.attempt, expired.excused, expired.interrupted, expired.lost, expired.followed,
       false as retrying, expired.isolated, expired.cancel_asked, expired.cancel_reason, expired.fence, expired.worker_id,
       expired.started_at, expired.lease_span, null::bigint as finished_at, null::text as reason, held.held,
       {now} as token
from expired join held on held.worker_id = expired.worker_id
cross join lateral (
    select id::text, queue, task, order_key, limit_key, priority, max_attempts, turn
    from {schema}.job join {schema}.lane on lane.lane_id = job.lane_id where seq = expired.seq limit 1
) as job;

-- name: lock_of_worker
with held as materialized (
    select seq, lane_id, fence, worker_id, started_at, lease_span, attempt, excused, interrupted, lost, isolated, followed,
           cancel_asked, cancel_reason
    from {schema}.running where worker_id = %(worker_id)s
    order by seq limit %(limit)s
    for update skip locked
)
select job.id, held.seq, held.lane_id, job.queue, job.task, job.order_key, job.limit_key, 'running' as state,
       job.priority,
       job.max_attempts, job.turn, held.attempt, held.excused, held.interrupted, held.lost, held.followed,
       false as retrying, held.isolated, held.cancel_asked, held.cancel_reason, held.fence, held.worker_id,
       held.started_at, held.lease_span, null::bigint as finished_at, null::text as reason,
       (select count(*) from {schema}.running where worker_id = %(worker_id)s) as held, {now} as token
from held
cross join lateral (
    select id::text, queue, task, order_key, limit_key, priority, max_attempts, turn
    from {schema}.job join {schema}.lane on lane.lane_id = job.lane_id where seq = held.seq limit 1
) as job;

-- name: ended
-- The outcomes that the holders of these leases wrote under their fences: for a repeat of a call whose reply was lost.
select given.seq, given.fence, ended.outcome
from unnest(%(seqs)s::bigint[], %(fences)s::bigint[]) as given (seq, fence)
cross join lateral (
    (select 'completed' as outcome from {schema}.completed where seq = given.seq and fence = given.fence limit 1)
    union all
    (select outcome from {schema}.attempt where seq = given.seq and fence = given.fence and by_holder limit 1)
    limit 1
) as ended;

-- name: leave_running
delete from {schema}.running where seq = any(array(select unnest(%(seq)s::bigint[])));

-- name: leave_ready
delete from {schema}.ready where ctid = any(array(
    select old.place
    from unnest(%(lane_id)s::integer[], %(turn)s::bigint[], %(seq)s::bigint[]) as given (lane_id, turn, seq)
    cross join lateral (
        select ctid as place from {schema}.ready
        where lane_id = given.lane_id and turn = given.turn and seq = given.seq limit 1
    ) as old
));

-- name: leave_scheduled
delete from {schema}.scheduled where ctid = any(array(
    select old.place from unnest(%(run_at)s::bigint[], %(seq)s::bigint[]) as given (run_at, seq)
    cross join lateral (
        select ctid as place from {schema}.scheduled where run_at = given.run_at and seq = given.seq limit 1
    ) as old
));

-- name: leave_blocked
delete from {schema}.blocked where seq = any(array(select unnest(%(seq)s::bigint[])));

-- name: leave_failed
delete from {schema}.failed where seq = any(array(select unnest(%(seq)s::bigint[])));

-- name: leave_cancelled
delete from {schema}.cancelled where seq = any(array(select unnest(%(seq)s::bigint[])));

-- name: put_ready
insert into {schema}.ready (lane_id, turn, seq, payload_bytes, attempt, excused, interrupted, lost, followed)
select given.lane_id, given.turn, given.seq, job.payload_bytes, attempt, excused, interrupted, lost, followed
from unnest(
    %(lane_id)s::integer[], %(turn)s::bigint[], %(seq)s::bigint[], %(attempt)s::integer[], %(excused)s::integer[],
    %(interrupted)s::integer[], %(lost)s::integer[], %(followed)s::boolean[]
) as given (lane_id, turn, seq, attempt, excused, interrupted, lost, followed)
cross join lateral (select payload_bytes from {schema}.job where seq = given.seq limit 1) as job;

-- name: put_scheduled
insert into {schema}.scheduled (run_at, seq, retrying, attempt, excused, interrupted, lost, followed)
select * from unnest(
    %(run_at)s::bigint[], %(seq)s::bigint[], %(retrying)s::boolean[], %(attempt)s::integer[], %(excused)s::integer[],
    %(interrupted)s::integer[], %(lost)s::integer[], %(followed)s::boolean[]
);

-- name: put_failed
insert into {schema}.failed (seq, attempt, excused, lost, finished_at, reason)
select * from unnest(
    %(seq)s::bigint[], %(attempt)s::integer[], %(excused)s::integer[], %(lost)s::integer[], %(finished_at)s::bigint[],
    %(reason)s::text[]
);

-- name: put_cancelled
insert into {schema}.cancelled (seq, attempt, excused, lost, finished_at, reason)
select * from unnest(
    %(seq)s::bigint[], %(attempt)s::integer[], %(excused)s::integer[], %(lost)s::integer[], %(finished_at)s::bigint[],
    %(reason)s::text[]
);

-- name: set_turns
update {schema}.job set turn = (%(turn)s::bigint[])[array_position(%(seq)s::bigint[], seq)]
where seq = any(array(select unnest(%(seq)s::bigint[])));

-- name: ask_to_cancel
update {schema}.running
set cancel_asked = true, cancel_reason = (%(reason)s::text[])[array_position(%(seq)s::bigint[], seq)]
where seq = any(array(select unnest(%(seq)s::bigint[])));

-- name: clear_isolation
-- For the other leases of workers that have lost some. Waiting for locked rows could deadlock: such a row stays as it
-- is, and at worst its job is blamed for one loss.
update {schema}.running set isolated = false
where seq = any(array(
    select seq from {schema}.running where worker_id = any(%(worker_ids)s::text[]) and isolated for update skip locked
));

-- name: record_attempts
insert into {schema}.attempt (
    seq, attempt, fence, by_holder, worker_id, started_at, ended_at, outcome, error_class, message, traceback, signature
)
select * from unnest(
    %(seq)s::bigint[], %(attempt)s::integer[], %(fence)s::bigint[], %(by_holder)s::boolean[], %(worker_id)s::text[],
    %(started_at)s::bigint[], %(ended_at)s::bigint[], %(outcome)s::text[], %(error_class)s::text[],
    %(message)s::text[], %(traceback)s::text[], %(signature)s::text[]
);

-- name: thin_attempts
-- Keep only the first and the last few attempts: a job that retries for weeks stays small.
delete from {schema}.attempt as old
using unnest(%(seq)s::bigint[], %(after)s::integer[], %(up_to)s::integer[]) as given (seq, after, up_to)
where old.seq = any(array(select unnest(%(seq)s::bigint[]))) and old.seq = given.seq
  and old.attempt > given.after and old.attempt <= given.up_to;

-- name: count_events
insert into {schema}.tally (minute_at, lane_id, enqueued, retried, failed, cancelled, lost)
select * from unnest(
    %(minute_at)s::bigint[], %(lane_id)s::integer[], %(enqueued)s::integer[], %(retried)s::integer[],
    %(failed)s::integer[], %(cancelled)s::integer[], %(lost)s::integer[]
);
