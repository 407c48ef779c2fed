-- Find and end the sessions that lock rows which recovery needs.
--
-- The `xmax` of a row is the transaction that has locked it, and pg_locks maps each open transaction to its session. So
-- a session is ended only while it holds this very row. Where several transactions share a lock, `xmax` is a multixact
-- id. Where the row was locked inside a savepoint, it is the id of the subtransaction. Once the savepoint is released,
-- no view maps that id to a session: the server reports the blocking session only for a session that waits for the row.

-- name: holders_of_leases
-- For expired leases: the transaction that holds the row, or the row of the order or limit key that the end of the job
-- must lock; for how long it may; and how long ago the lease expired. A handler's transaction may last a third of the lease.
with expired as materialized (
    select running.seq, running.xmax::text as holder, running.followed, running.lease_span / %(parts)s::bigint as allowed,
           instant.now - running.lease_until as overdue
    from {schema}.running as running cross join (select {now} as now) as instant
    where lease_until <= instant.now and (%(longest)s::bigint is null or lease_span <= %(longest)s::bigint)
)
select holder, allowed, overdue, seq from expired where holder <> '0'
union all
select head.holder, expired.allowed, expired.overdue, expired.seq
from expired
cross join lateral (select lane_id, order_key from {schema}.job where seq = expired.seq limit 1) as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
cross join lateral (
    select xmax::text as holder from {schema}.key_head
    where queue = lane.queue and order_key = job.order_key and xmax::text <> '0' limit 1
) as head
where expired.followed
union all
select known.holder, expired.allowed, expired.overdue, expired.seq
from expired
cross join lateral (select lane_id, limit_key from {schema}.job where seq = expired.seq limit 1) as job
cross join lateral (
    select xmax::text as holder from {schema}.limit_key
    where lane_id = job.lane_id and limit_key = job.limit_key and xmax::text <> '0' limit 1
) as known
where expired.followed;

-- name: holders_of_shares
-- The same for shares that are to be seized. A handler's transaction is shorter than the time to live of its node.
select allocation.holder, coalesce(node.ttl, longest.ttl),
       coalesce(instant.now - node.heartbeat_at - node.ttl, longest.ttl), null::bigint
from unnest(%(consumers)s::text[], %(categories)s::text[], %(partition_ids)s::integer[])
    as given (consumer, category, partition_id)
cross join lateral (
    select xmax::text as holder, owner from {schema}.allocation
    where consumer = given.consumer and partition_id = given.partition_id
      and category_id = (select category_id from {schema}.category where category = given.category) limit 1
) as allocation
cross join (select {now} as now) as instant
cross join (select max(ttl) as ttl from {schema}.node) as longest
left join {schema}.node as node on node.node_id = allocation.owner
where allocation.holder <> '0';

-- name: end_holders
-- End the sessions of these transactions, or those that block the session `waiting`, if their transactions have been
-- open for longer than is allowed. The start of a transaction of another role may be hidden: then the lease must have
-- expired that long ago. Null: this role may not end the session.
with given as materialized (
    select holder::xid as holder, min(allowed) as allowed, min(overdue) as overdue
    from unnest(%(holders)s::text[], %(allowed)s::bigint[], %(overdue)s::bigint[]) as given (holder, allowed, overdue)
    group by holder
),
lock as materialized (
    select pid, locktype, transactionid, relation from pg_locks
    where granted and (
        locktype = 'transactionid' or locktype = 'relation' and mode in ('RowShareLock', 'RowExclusiveLock')
    )
),
-- Querying the members of a multixact id that does not exist, or no longer exists, would be an error.
grouped as materialized (
    select * from given
    where mxid_age(holder) between 1 and (select max(mxid_age(datminmxid)) from pg_database)
      and not exists (select 1 from lock where lock.transactionid = given.holder)
),
holding as (
    select lock.pid, given.allowed, given.overdue from given join lock on lock.transactionid = given.holder
    union all
    select lock.pid, grouped.allowed, grouped.overdue
    from grouped cross join lateral pg_get_multixact_members(grouped.holder) as member
    join lock on lock.transactionid = member.xid
    union all
    select blocking.pid, given.allowed, given.overdue
    from given cross join unnest(pg_blocking_pids(%(waiting)s::integer)) as blocking (pid)
    where %(waiting)s::integer is not null
),
late as materialized (
    select activity.pid, activity.usesysid, activity.usename,
           coalesce((extract(epoch from clock_timestamp() - activity.xact_start) * 1000000)::bigint, holding.overdue)
               as age
    from holding join pg_stat_activity as activity on activity.pid = holding.pid
    where activity.datname = current_database() and activity.pid <> pg_backend_pid()
      and coalesce(
          clock_timestamp() - activity.xact_start > holding.allowed * interval '1 microsecond',
          holding.overdue > holding.allowed
      )
      and exists (
          select 1 from lock as ours join pg_class on pg_class.oid = ours.relation
          where ours.pid = holding.pid
            and pg_class.relnamespace = (select relnamespace from pg_class where oid = '{schema}.job'::regclass)
      )
),
-- One row per session, regardless of how many of our rows it holds.
session as materialized (
    select pid, usesysid, usename, max(age) as age from late group by pid, usesysid, usename
)
select session.pid, session.usename::text, session.age, case when
    (pg_has_role(session.usesysid, 'usage') or pg_has_role('pg_signal_backend', 'usage'))
    and (not victim.rolsuper or ourselves.rolsuper)
    then pg_terminate_backend(session.pid, 100) end
from session
join pg_roles as victim on victim.oid = session.usesysid
join pg_roles as ourselves on ourselves.rolname = current_user;

-- name: end_stuck_sessions
-- A client that is stopped in the middle of sending leaves an active session that waits for the rest of the input: no
-- timeout of the server ends it. Rows of leadership and node are locked only by our own verbs, which take milliseconds.
-- Other rows may be locked by a transaction of a handler or of a caller: it is ended if it has been open for longer
-- than the limit of any handler's transaction and for at least `least`, and blocks another session on one of our rows.
with stuck as materialized (
    select pid, usesysid, usename, xact_start, state_change from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and state = 'active'
      and wait_event_type = 'Client' and state_change < clock_timestamp() - %(pause)s::bigint * interval '1 microsecond'
),
ours as materialized (
    select oid from pg_class
    where exists (select 1 from stuck)
      and relnamespace = (select relnamespace from pg_class where oid = '{schema}.job'::regclass)
),
lock as materialized (
    select pid, granted, locktype, relation, mode, waitstart from pg_locks where exists (select 1 from stuck)
),
longest as materialized (
    select greatest(
        %(least)s::bigint, (select max(lease_span) / %(parts)s::bigint from {schema}.running), (select max(ttl) from {schema}.node)
    ) * interval '1 microsecond' as span
    where exists (select 1 from stuck)
),
waiting as materialized (
    select pid from lock
    where not granted and waitstart < clock_timestamp() - %(pause)s::bigint * interval '1 microsecond'
      and (locktype = 'tuple' and relation in (select oid from ours)
           or pid in (select pid from lock where granted and locktype = 'tuple' and relation in (select oid from ours)))
),
session as materialized (
    select * from stuck
    where exists (
        select 1 from lock where lock.pid = stuck.pid and lock.granted and lock.locktype = 'relation'
            and lock.relation in ('{schema}.leadership'::regclass, '{schema}.node'::regclass)
            and lock.mode in ('RowShareLock', 'RowExclusiveLock')
    ) or (
        stuck.xact_start < clock_timestamp() - (select span from longest)
        and stuck.pid = any(array(select unnest(pg_blocking_pids(waiting.pid)) from waiting))
    )
)
select session.pid, session.usename::text,
       (extract(epoch from clock_timestamp() - session.xact_start) * 1000000)::bigint, case when
    (pg_has_role(session.usesysid, 'usage') or pg_has_role('pg_signal_backend', 'usage'))
    and (not victim.rolsuper or ourselves.rolsuper)
    then pg_terminate_backend(session.pid, 100) end
from session
join pg_roles as victim on victim.oid = session.usesysid
join pg_roles as ourselves on ourselves.rolname = current_user;

-- name: session_number
select pg_backend_pid();

-- name: wait_for_running
-- The row of a lease, and that of its order key.
select 1 from {schema}.running where seq = %(seq)s for update;

-- name: wait_for_order_key
select 1 from {schema}.key_head
where key_id = (
    select head.key_id
    from {schema}.job as job
    join {schema}.lane as lane on lane.lane_id = job.lane_id
    join {schema}.key_head as head on head.queue = lane.queue and head.order_key = job.order_key
    where job.seq = %(seq)s
)
for update;

-- name: wait_for_limit_key
select 1 from {schema}.limit_key
where key_id = (
    select known.key_id
    from {schema}.job as job
    join {schema}.limit_key as known on known.lane_id = job.lane_id and known.limit_key = job.limit_key
    where job.seq = %(seq)s
)
for update;

-- name: wait_at_most
select set_config('lock_timeout', %(milliseconds)s::text, true);

-- name: locked_order_keys
-- Lock the order keys of these jobs, except keys that other sessions have locked; return the jobs of those.
with held as materialized (
    select given.seq, head.key_id
    from unnest(%(seqs)s::bigint[]) as given (seq)
    cross join lateral (select lane_id, order_key from {schema}.job where seq = given.seq limit 1) as job
    join {schema}.lane as lane on lane.lane_id = job.lane_id
    cross join lateral (
        select key_id from {schema}.key_head where queue = lane.queue and order_key = job.order_key limit 1
    ) as head
),
free as materialized (
    select key_id from {schema}.key_head where key_id = any(array(select key_id from held)) for update skip locked
)
select seq from held where key_id not in (select key_id from free);

-- name: free_shares
-- Lock these shares, except those that other sessions have locked; return the places (in the input) and owners of the
-- locked ones.
select given.place, allocation.owner
from unnest(%(consumers)s::text[], %(categories)s::text[], %(partition_ids)s::integer[]) with ordinality
    as given (consumer, category, partition_id, place)
cross join lateral (
    select owner from {schema}.allocation
    where consumer = given.consumer and partition_id = given.partition_id
      and category_id = (select category_id from {schema}.category where category = given.category) limit 1
    for update skip locked
) as allocation;

-- name: locked_nodes
-- Lock these nodes, except those that other sessions have locked; return the latter.
with free as materialized (
    select node_id from {schema}.node where node_id = any(%(node_ids)s::text[]) for share skip locked
)
select node_id from {schema}.node
where node_id = any(%(node_ids)s::text[]) and node_id not in (select node_id from free);

-- name: locked_consumers
with free as materialized (
    select consumer from {schema}.consumer where consumer = any(%(consumers)s::text[]) for key share skip locked
)
select consumer from {schema}.consumer
where consumer = any(%(consumers)s::text[]) and consumer not in (select consumer from free);
