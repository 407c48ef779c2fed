-- Rows of running: how they are found and locked, and how they leave without completing.

-- name: lock_leases
-- Waits for whoever holds a row; the caller sorts the leases, so that two such calls do not lock each other out.
select running.*, job.max_attempts, job.turn, job.priority, job.payload_bytes, {now}
from unnest(%(seqs)s::bigint[], %(fences)s::bigint[]) with ordinality as given (seq, fence, place)
cross join lateral (
    select seq, lane_id, fence, worker_id, started_at, attempt, excused, interrupted, lost, isolated, keyed,
           cancel_asked, cancel_reason
    from {schema}.running where seq = given.seq and fence = given.fence limit 1
    for update
) as running
cross join lateral (
    select max_attempts, turn, priority, payload_bytes from {schema}.job where seq = running.seq limit 1
) as job
order by given.place;

-- name: lock_running
select running.*, job.max_attempts, job.turn, job.priority, job.payload_bytes, {now}
from (
    select seq, lane_id, fence, worker_id, started_at, attempt, excused, interrupted, lost, isolated, keyed,
           cancel_asked, cancel_reason
    from {schema}.running where seq = %(seq)s
    for update
) as running
cross join lateral (
    select max_attempts, turn, priority, payload_bytes from {schema}.job where seq = running.seq limit 1
) as job;

-- name: lock_expired
-- Rows that a handler's transaction holds are passed over: their holder is at work. What a worker has in its hands is
-- counted in the same snapshot: of two calls that take from one worker at once, each sees what the other takes.
with expired as materialized (
    select seq, lane_id, fence, worker_id, started_at, attempt, excused, interrupted, lost, isolated, keyed,
           cancel_asked, cancel_reason, lease_span
    from {schema}.running
    where lease_until <= {now} and (%(unbroken)s::bigint is null or lease_span <= 2 * %(unbroken)s::bigint)
    order by lease_until limit %(limit)s
    for update skip locked
),
hands as materialized (
    select worker_id, count(*) as held from {schema}.running
    where worker_id = any(array(select worker_id from expired)) group by worker_id
)
select expired.seq, expired.lane_id, expired.fence, expired.worker_id, expired.started_at, expired.attempt,
       expired.excused, expired.interrupted, expired.lost, expired.isolated, expired.keyed,
       expired.cancel_asked, expired.cancel_reason, job.max_attempts, job.turn, job.priority, job.payload_bytes, {now},
       hands.held, expired.lease_span
from expired join hands on hands.worker_id = expired.worker_id
cross join lateral (
    select max_attempts, turn, priority, payload_bytes from {schema}.job where seq = expired.seq limit 1
) as job;

-- name: lock_of_worker
with held as materialized (
    select seq, lane_id, fence, worker_id, started_at, attempt, excused, interrupted, lost, isolated, keyed,
           cancel_asked, cancel_reason
    from {schema}.running where worker_id = %(worker_id)s
    order by seq limit %(limit)s
    for update skip locked
)
select held.*, job.max_attempts, job.turn, job.priority, job.payload_bytes, {now},
       (select count(*) from {schema}.running where worker_id = %(worker_id)s)
from held cross join lateral (
    select max_attempts, turn, priority, payload_bytes from {schema}.job where seq = held.seq limit 1
) as job;

-- name: isolate_no_more
-- What is left to workers that have lost some of their leases. To wait for rows that others have locked might be to wait
-- for each other; such a row stays as it is, and the worst that comes of it is that the job is blamed for one loss.
update {schema}.running set isolated = false
where seq = any(array(
    select seq from {schema}.running where worker_id = any(%(worker_ids)s::text[]) and isolated for update skip locked
));

-- name: any_expired
select exists (
    select 1 from {schema}.running
    where lease_until <= {now} and (%(unbroken)s::bigint is null or lease_span <= 2 * %(unbroken)s::bigint)
);

-- name: describe_jobs
select job.seq, job.id::text, lane.queue, lane.task
from unnest(%(seqs)s::bigint[]) as given (seq)
cross join lateral (select seq, id, lane_id from {schema}.job where seq = given.seq limit 1) as job
join {schema}.lane as lane on lane.lane_id = job.lane_id;

-- name: leave_running
delete from {schema}.running where seq = any(array(select unnest(%(seqs)s::bigint[])));

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
-- Of very many attempts the first few and the last few are kept: a job that retries for weeks stays small.
delete from {schema}.attempt as old using unnest(%(seqs)s::bigint[], %(attempts)s::integer[]) as latest (seq, attempt)
where old.seq = any(array(select unnest(%(seqs)s::bigint[]))) and old.seq = latest.seq
  and old.attempt > %(first)s and old.attempt <= latest.attempt - %(last)s;

-- name: put_ready
insert into {schema}.ready (lane_id, turn, seq, payload_bytes, attempt, excused, interrupted, lost, keyed)
select * from unnest(
    %(lane_id)s::integer[], %(turn)s::bigint[], %(seq)s::bigint[], %(payload_bytes)s::integer[],
    %(attempt)s::integer[], %(excused)s::integer[], %(interrupted)s::integer[], %(lost)s::integer[],
    %(keyed)s::boolean[]
);

-- name: put_scheduled
insert into {schema}.scheduled (run_at, seq, retrying, attempt, excused, interrupted, lost, keyed)
select run_at, seq, true, attempt, excused, interrupted, lost, keyed from unnest(
    %(run_at)s::bigint[], %(seq)s::bigint[], %(attempt)s::integer[], %(excused)s::integer[],
    %(interrupted)s::integer[], %(lost)s::integer[], %(keyed)s::boolean[]
) as given (run_at, seq, attempt, excused, interrupted, lost, keyed);

-- name: set_turns
update {schema}.job set turn = (%(turns)s::bigint[])[array_position(%(seqs)s::bigint[], seq)]
where seq = any(array(select unnest(%(seqs)s::bigint[])));

-- name: put_failed
insert into {schema}.failed (seq, attempt, lost, finished_at, reason)
select * from unnest(
    %(seq)s::bigint[], %(attempt)s::integer[], %(lost)s::integer[], %(finished_at)s::bigint[], %(reason)s::text[]
);

-- name: put_cancelled
insert into {schema}.cancelled (seq, attempt, lost, finished_at, reason)
select * from unnest(
    %(seq)s::bigint[], %(attempt)s::integer[], %(lost)s::integer[], %(finished_at)s::bigint[], %(reason)s::text[]
);

-- name: count_events
insert into {schema}.tally (minute_at, lane_id, enqueued, retried, failed, cancelled, lost)
select at - at %% {minute}, lane_id, enqueued, retried, failed, cancelled, lost
from unnest(
    %(at)s::bigint[], %(lane_id)s::integer[], %(enqueued)s::integer[], %(retried)s::integer[], %(failed)s::integer[],
    %(cancelled)s::integer[], %(lost)s::integer[]
) as given (at, lane_id, enqueued, retried, failed, cancelled, lost);

-- name: extend_many
-- `held` skips what a transaction has locked; a row that is there all the same is not lost, but is told as not extended.
with instant as materialized (select {now} as now),
given as materialized (
    select seq, fence from unnest(%(seqs)s::bigint[], %(fences)s::bigint[]) as given (seq, fence)
),
held as materialized (
    select running.seq
    from given cross join lateral (
        select seq from {schema}.running where seq = given.seq and fence = given.fence limit 1
        for update skip locked
    ) as running
),
extended as (
    update {schema}.running
    set lease_until = greatest(lease_until, instant.now + %(span)s), lease_span = %(span)s
    from instant
    where seq = any(array(select seq from held))
)
select given.seq, given.fence, running.cancel_asked, given.seq = any(array(select seq from held))
from given cross join lateral (
    select cancel_asked from {schema}.running where seq = given.seq and fence = given.fence limit 1
) as running;

-- name: extend_one
update {schema}.running set lease_until = greatest(lease_until, {now} + %(span)s)
where seq = %(seq)s and fence = %(fence)s returning seq;

-- name: asked_to_cancel
select job.id, running.seq, running.fence
from {schema}.running as running
cross join lateral (select id::text from {schema}.job where seq = running.seq limit 1) as job
where running.worker_id = %(worker_id)s and running.cancel_asked;

-- name: unheard
select job.id, running.seq, running.fence
from {schema}.running as running
cross join lateral (select id::text from {schema}.job where seq = running.seq limit 1) as job
where running.worker_id = %(worker_id)s and running.fence > %(after)s order by running.seq;

-- name: set_progress
update {schema}.running
set percent = coalesce(%(percent)s::double precision, percent), note = coalesce(%(note)s::text, note)
where seq = %(seq)s and fence = %(fence)s returning seq;

-- name: lock_lease
-- For a handler's transaction: from here on nobody can take the lease away.
-- Should this process fall silent, the server ends the session after the limit, and the row is free.
select seq, set_config('idle_in_transaction_session_timeout', %(milliseconds)s::text, true)
from {schema}.running where seq = %(seq)s and fence = %(fence)s for update;

-- name: wait_for_lease
select seq from {schema}.running where seq = %(seq)s and fence = %(fence)s for key share;

-- name: was_completed
select exists (select 1 from {schema}.completed where seq = %(seq)s and fence = %(fence)s);

-- name: beat
insert into {schema}.worker (worker_id, beat, started_at, beat_at)
select %(worker_id)s, %(beat)s, now, now from (select {now} as now) as instant
on conflict (worker_id) do update set beat = excluded.beat, beat_at = excluded.beat_at;

-- name: forget_worker
delete from {schema}.worker where worker_id = %(worker_id)s;
