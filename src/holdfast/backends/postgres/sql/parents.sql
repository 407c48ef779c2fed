-- Jobs that wait for parents: the statements for many rows.

-- name: add_link
insert into {schema}.parent_link (child_seq, place, parent_seq, run_anyway)
select * from unnest(%(child_seq)s::bigint[], %(place)s::integer[], %(parent_seq)s::bigint[], %(run_anyway)s::boolean[]);

-- name: follow_ready
update {schema}.ready set followed = true where ctid = any(array(
    select old.place from unnest(%(lane_id)s::integer[], %(turn)s::bigint[], %(seq)s::bigint[]) as given (lane_id, turn, seq)
    cross join lateral (
        select ctid as place from {schema}.ready
        where lane_id = given.lane_id and turn = given.turn and seq = given.seq limit 1
    ) as old
));

-- name: follow_scheduled
update {schema}.scheduled set followed = true where ctid = any(array(
    select old.place from unnest(%(run_at)s::bigint[], %(seq)s::bigint[]) as given (run_at, seq)
    cross join lateral (
        select ctid as place from {schema}.scheduled where run_at = given.run_at and seq = given.seq limit 1
    ) as old
));

-- name: follow_blocked
update {schema}.blocked set followed = true where seq = any(array(select unnest(%(seq)s::bigint[])));

-- name: follow_running
update {schema}.running set followed = true where seq = any(array(select unnest(%(seq)s::bigint[])));

-- name: put_waiting
insert into {schema}.blocked (key_id, place, seq, attempt, excused, interrupted, lost, followed)
select 0, given.seq, given.* from unnest(
    %(seq)s::bigint[], %(attempt)s::integer[], %(excused)s::integer[], %(interrupted)s::integer[], %(lost)s::integer[],
    %(followed)s::boolean[]
) as given (seq, attempt, excused, interrupted, lost, followed);

-- name: mark_broken
update {schema}.parent_link as link set broken = true
from unnest(%(child_seq)s::bigint[], %(parent_seq)s::bigint[]) as given (child_seq, parent_seq)
where link.child_seq = any(array(select unnest(%(child_seq)s::bigint[]))) and link.child_seq = given.child_seq
  and link.parent_seq = given.parent_seq;

-- name: clear_broken
update {schema}.parent_link set broken = false
where child_seq = any(array(select unnest(%(child_seq)s::bigint[]))) and broken;

-- name: record_change
insert into {schema}.parent_change (seq) select unnest(%(seq)s::bigint[]);

-- name: lock_children
-- The caller sorts the seqs, so that two such calls cannot deadlock. A child that moves to another table while this
-- waits for its row is left out, and so is one that was cancelled by an operator since it was read.
select job.id, given.seq, job.lane_id, job.queue, job.task, job.order_key, job.limit_key,
       case when blocked.seq is not null then 'blocked' else 'cancelled' end as state, job.priority, job.max_attempts,
       job.turn, coalesce(blocked.attempt, cancelled.attempt) as attempt, coalesce(blocked.excused, 0) as excused,
       coalesce(blocked.interrupted, 0) as interrupted, coalesce(blocked.lost, cancelled.lost) as lost,
       coalesce(blocked.followed, false) as followed, false as retrying, false as isolated, false as cancel_asked,
       null::text as cancel_reason, 0::bigint as fence, null::text as worker_id, null::bigint as started_at,
       null::bigint as lease_span, cancelled.finished_at, cancelled.reason, 0::bigint as held, {now} as token
from unnest(%(seqs)s::bigint[]) with ordinality as given (seq, place)
left join lateral (
    select seq, attempt, excused, interrupted, lost, followed from {schema}.blocked
    where seq = given.seq and key_id = 0 limit 1
    for update
) as blocked on true
left join lateral (
    select seq, attempt, lost, finished_at, reason from {schema}.cancelled
    where seq = given.seq
      and (select 1 from {schema}.parent_link as link where link.child_seq = given.seq and link.broken limit 1) is not null
    limit 1
    for update
) as cancelled on true
cross join lateral (
    select id::text, lane.lane_id, queue, task, order_key, limit_key, priority, max_attempts, turn
    from {schema}.job join {schema}.lane on lane.lane_id = job.lane_id where seq = given.seq limit 1
) as job
where blocked.seq is not null or cancelled.seq is not null
order by given.place;
