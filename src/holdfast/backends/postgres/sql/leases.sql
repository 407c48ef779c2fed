-- Leases and the workers that hold them. Every statement that writes under a lease carries its fence.

-- name: extend_many
-- `held` skips rows that a transaction has locked; such a lease is not lost, but is returned as not extended.
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
where seq = %(seq)s and fence = %(fence)s;

-- name: cancel_asked
select job.id as job_id, running.seq, running.fence
from {schema}.running as running
cross join lateral (select id::text from {schema}.job where seq = running.seq limit 1) as job
where running.worker_id = %(worker_id)s and running.cancel_asked;

-- name: unacknowledged_leases
select job.id as job_id, running.seq, running.fence
from {schema}.running as running
cross join lateral (select id::text from {schema}.job where seq = running.seq limit 1) as job
where running.worker_id = %(worker_id)s and running.fence > %(after)s order by running.seq;

-- name: set_progress
update {schema}.running
set percent = coalesce(%(percent)s::double precision, percent), note = coalesce(%(note)s::text, note)
where seq = %(seq)s and fence = %(fence)s;

-- name: lock_lease
-- For a handler's transaction: until its end, no rescue can take the lease. If this process stops responding, the
-- server ends the session after the limit, which unlocks the row.
select seq, set_config('idle_in_transaction_session_timeout', %(milliseconds)s::text, true)
from {schema}.running where seq = %(seq)s and fence = %(fence)s for update;

-- name: any_expired
select exists (
    select 1 from {schema}.running
    where lease_until <= {now} and (%(longest)s::bigint is null or lease_span <= %(longest)s::bigint)
) as found;

-- name: worker_heartbeat
insert into {schema}.worker (worker_id, beat, started_at, beat_at)
select %(worker_id)s, %(heartbeat)s, now, now from (select {now} as now) as instant
on conflict (worker_id) do update set beat = excluded.beat, beat_at = excluded.beat_at;

-- name: forget_worker
delete from {schema}.worker where worker_id = %(worker_id)s;
