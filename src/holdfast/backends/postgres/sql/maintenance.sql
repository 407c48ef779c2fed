-- Promotion, pruning, queues, and the version of the schema.

-- name: promote
-- `(select {now})`, here and below, is one constant instant, which an index scan can use as its bound; a volatile clock
-- cannot be a bound, and every row that is not yet due would be read. Jobs with a limit key stay: they are returned, and
-- go to their keys next.
with due as materialized (
    select ctid as place, run_at, seq from {schema}.scheduled where run_at <= (select {now}) order by run_at, seq
    limit %(limit)s
    for update skip locked
),
known as materialized (
    select due.place, due.run_at, due.seq, job.lane_id, job.turn, job.payload_bytes, job.limit_key is not null as is_limited
    from due cross join lateral (
        select lane_id, turn, payload_bytes, limit_key from {schema}.job where seq = due.seq limit 1
    ) as job
),
gone as (
    delete from {schema}.scheduled where ctid = any(array(select place from known where not is_limited))
    returning seq, attempt, excused, interrupted, lost, followed
),
readied as (
    insert into {schema}.ready (lane_id, turn, seq, payload_bytes, attempt, excused, interrupted, lost, followed)
    select known.lane_id, known.turn, gone.seq, known.payload_bytes, gone.attempt, gone.excused, gone.interrupted,
           gone.lost, gone.followed
    from gone join known on known.seq = gone.seq
)
select lane_id, turn, seq, is_limited from known;

-- name: due_limited
-- Scheduled jobs that `promote` has returned, and locked.
select scheduled.run_at, scheduled.seq, job.lane_id, job.turn, scheduled.attempt, scheduled.excused,
       scheduled.interrupted, scheduled.lost, scheduled.followed, true as is_limited
from unnest(%(seqs)s::bigint[]) as given (seq)
cross join lateral (select lane_id, turn, priority from {schema}.job where seq = given.seq limit 1) as job
cross join lateral (
    select run_at, seq, attempt, excused, interrupted, lost, followed from {schema}.scheduled
    where run_at = job.turn + job.priority::bigint * {priority_step} and seq = given.seq limit 1
) as scheduled;

-- name: old_completed
-- The oldest first, found by the row that represents each batch; the other rows of a batch are pruned before it, so
-- that it exists as long as any of them. Jobs that are listed in a batch but were completed by another statement do not
-- have its age; those of the first batch that an earlier call has pruned are skipped. `between_them` counts the jobs
-- between that batch and this one. A batch is passed over while its row is needed as a parent of an unfinished job.
with oldest as materialized (
    select seq, batch, finished_at,
           sum(cardinality(batch)) over by_age - cardinality(batch)
           - first_value(cardinality(batch)) over by_age as between_them
    from (
        select seq, batch, finished_at from {schema}.completed as ended
        where batch is not null and finished_at <= (select {now}) - %(keep)s
          and {no_open_child}
        order by finished_at limit %(limit)s
    ) as front
    window by_age as (order by finished_at, seq)
)
select member.seq
from oldest cross join lateral (
    select other.seq, false as is_last
    from unnest(oldest.batch) as given (seq)
    cross join lateral (select seq, finished_at from {schema}.completed where seq = given.seq limit 1) as other
    where other.seq <> oldest.seq and other.finished_at = oldest.finished_at
    union all
    select oldest.seq, true
) as member
where oldest.between_them < %(limit)s
order by oldest.finished_at, oldest.seq, member.is_last
limit %(limit)s;

-- name: detach_completed
-- If a row that represents a batch is deleted before the others of it, these represent themselves from now on: otherwise
-- `old_completed` would never find them.
update {schema}.completed set batch = array[]::bigint[]
where seq = any(array(
    select other.seq
    from {schema}.completed as gone cross join lateral unnest(gone.batch) as member (seq)
    cross join lateral (select seq, finished_at, batch from {schema}.completed where seq = member.seq limit 1) as other
    where gone.seq = any(%(seqs)s::bigint[]) and other.finished_at = gone.finished_at and other.batch is null
      and other.seq <> all(%(seqs)s::bigint[])
    order by other.seq
));

-- name: fold_counts
with over as (
    delete from {schema}.tally
    where ctid = any(array(
        select ctid from {schema}.tally where minute_at < {now} - {minute} limit %(limit)s for update skip locked
    ))
    returning *
)
insert into {schema}.minute_count as kept (
    minute_at, lane_id, enqueued, completed, retried, failed, cancelled, lost, run_time
)
select minute_at, lane_id, sum(enqueued), sum(completed), sum(retried), sum(failed), sum(cancelled), sum(lost),
       sum(run_time)
from over group by minute_at, lane_id order by minute_at, lane_id
on conflict (minute_at, lane_id) do update
set enqueued = kept.enqueued + excluded.enqueued, completed = kept.completed + excluded.completed,
    retried = kept.retried + excluded.retried, failed = kept.failed + excluded.failed,
    cancelled = kept.cancelled + excluded.cancelled, lost = kept.lost + excluded.lost,
    run_time = kept.run_time + excluded.run_time;

-- name: prune_counts
delete from {schema}.minute_count where minute_at < {now} - %(keep)s;

-- name: has_schema
select exists (select 1 from pg_catalog.pg_namespace where nspname = {schema_name});

-- name: has_meta_table
-- From the catalogue, not by to_regclass(): a session caches its negative results.
select exists (
    select 1 from pg_catalog.pg_class as c join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = {schema_name} and c.relname = 'meta'
) as found;

-- name: schema_version
select schema_version from {schema}.meta;

-- name: set_schema_version
update {schema}.meta set schema_version = %(version)s;

-- name: migration_lock
-- Held until the transaction ends, so it works through a transaction pooler; concurrent migrations wait.
select pg_advisory_xact_lock(hashtextextended('holdfast schema ' || {schema_name}, 0));
