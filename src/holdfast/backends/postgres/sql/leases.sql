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

-- name: locked_leases
-- Lock these leases, except those that other sessions have locked; return the jobs of those.
with held as materialized (
    select given.seq
    from unnest(%(seqs)s::bigint[], %(fences)s::bigint[]) as given (seq, fence)
    cross join lateral (
        select 1 from {schema}.running where seq = given.seq and fence = given.fence limit 1
    ) as running
),
free as materialized (
    select seq from {schema}.running where seq = any(array(select seq from held)) for update skip locked
)
select seq from held where seq not in (select seq from free);

-- name: lock_batch
-- As `lock_lease`, for a transaction over many jobs. The caller sorts the leases, so that two such calls cannot deadlock.
-- One row for all of them: whether another job follows one of them, and if not all are held, the places of those that
-- are; a row for each took a tenth of the client's time. The timeout is set once: a subquery that refers to no row is
-- run once.
select case when number < cardinality(%(seqs)s::bigint[]) then array(
           select given.place
           from unnest(%(seqs)s::bigint[], %(fences)s::bigint[]) with ordinality as given (seq, fence, place)
           cross join lateral (
               select 1 from {schema}.running where seq = given.seq and fence = given.fence limit 1 for update
           ) as running
       ) end,
       is_followed
from (
    select count(*) as number, coalesce(bool_or(running.followed), false) as is_followed
    from unnest(%(seqs)s::bigint[], %(fences)s::bigint[]) as given (seq, fence)
    cross join lateral (
        select followed from {schema}.running where seq = given.seq and fence = given.fence limit 1 for update
    ) as running
    where (select set_config('idle_in_transaction_session_timeout', %(milliseconds)s::text, true)) is not null
) as counted;

-- name: lock_claimed
-- As `lock_batch`, for jobs of one claim: one scan of the index finds their rows, without a lookup for each. If not all
-- are held, it returns the seqs of those that are.
select case when number < cardinality(%(seqs)s::bigint[]) then array(
           select seq from {schema}.running where seq = any(%(seqs)s::bigint[]) and fence = %(fence)s for update
       ) end,
       is_followed
from (
    select count(*) as number, coalesce(bool_or(followed), false) as is_followed
    from (
        select followed from {schema}.running
        where seq = any(%(seqs)s::bigint[]) and fence = %(fence)s
          and (select set_config('idle_in_transaction_session_timeout', %(milliseconds)s::text, true)) is not null
        order by seq for update
    ) as locked
) as counted;

-- name: lock_lease
-- For a handler's transaction: until its end, no rescue can take the lease, and no job can be made to follow this one.
-- If this process stops responding, the server ends the session after the limit, which unlocks the row.
select set_config('idle_in_transaction_session_timeout', %(milliseconds)s::text, true), followed
from {schema}.running where seq = %(seq)s and fence = %(fence)s for update;
