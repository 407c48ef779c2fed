-- The rows of jobs: lock them, and find out what became of them. Locks are taken in separate subqueries, so that the
-- bodies and lanes that are read beside them stay free.

-- part: lease_columns
job.id, running.seq, running.lane_id, lane.queue, lane.task, job.order_key, job.limit_key, 'running' as state,
       job.priority, job.max_attempts, job.turn, running.attempt, running.excused, running.interrupted, running.lost, running.followed,
       0 as retrying, running.isolated, running.cancel_asked, running.cancel_reason, running.fence, running.worker_id,
       running.started_at, running.lease_span, null as finished_at, null as reason;

-- name: lock_leases
-- Waits for transactions that have locked a row. May return the seq of one lease with the fence of another: the caller
-- compares the pairs, and sorts them, so that two such calls cannot deadlock.
select {lease_columns}, 0 as held, {now} as token
from (
    select held.* from {given_seqs}
    straight_join holdfast_running as held force index (primary) on held.seq = given.seq
    where held.fence in (:fences) limit 1000000 for update
) as running
straight_join holdfast_job as job on job.seq = running.seq
straight_join holdfast_lane as lane on lane.lane_id = job.lane_id;

-- name: lock_expired
-- Looks without locks first, then skips rows that a handler's transaction has locked: their holder is active.
select {lease_columns}, fleet.held, {now} as token
from (
    select held.* from (
        select seq from holdfast_running
        where lease_until <= {now} and (:longest is null or lease_span <= :longest) order by lease_until limit :limit
    ) as expired
    straight_join holdfast_running as held force index (primary) on held.seq = expired.seq
    where held.lease_until <= {now} and (:longest is null or held.lease_span <= :longest)
    limit 1000000 for update skip locked
) as running
straight_join (
    select worker_id, count(*) as held from holdfast_running group by worker_id
) as fleet on fleet.worker_id = running.worker_id
straight_join holdfast_job as job on job.seq = running.seq
straight_join holdfast_lane as lane on lane.lane_id = job.lane_id;

-- name: lock_of_worker
select {lease_columns},
       (select count(*) from holdfast_running where worker_id = :worker_id) as held, {now} as token
from (
    select held.* from (
        select seq from holdfast_running where worker_id = :worker_id order by seq limit :limit
    ) as mine
    straight_join holdfast_running as held force index (primary) on held.seq = mine.seq
    where held.worker_id = :worker_id limit 1000000 for update skip locked
) as running
straight_join holdfast_job as job on job.seq = running.seq
straight_join holdfast_lane as lane on lane.lane_id = job.lane_id;

-- part: waiting_rows
left join (
    select state.* from holdfast_ready as state force index (primary)
    where lane_id = (select lane_id from holdfast_job where id = :id)
      and turn = (select turn from holdfast_job where id = :id) and seq = (select seq from holdfast_job where id = :id)
    limit 1 for update
) as ready on true
left join (
    select state.* from holdfast_scheduled as state force index (primary)
    where run_at = (select turn + priority * {priority_step} from holdfast_job where id = :id)
      and seq = (select seq from holdfast_job where id = :id)
    limit 1 for update
) as scheduled on true
left join (
    select state.* from holdfast_blocked as state where seq = (select seq from holdfast_job where id = :id)
    limit 1 for update
) as blocked on true;

-- name: lock_job
-- One job in any state: at most one of these rows exists. If a job moves to another table while this waits for its row,
-- none of its rows may be found: its state is null.
select {locked_job}
from holdfast_job as job
straight_join holdfast_lane as lane on lane.lane_id = job.lane_id
left join (
    select state.* from holdfast_running as state where seq = (select seq from holdfast_job where id = :id)
    limit 1 for update
) as running on true
{waiting_rows}
left join (
    select state.* from holdfast_failed as state where seq = (select seq from holdfast_job where id = :id)
    limit 1 for update
) as failed on true
left join (
    select state.* from holdfast_cancelled as state where seq = (select seq from holdfast_job where id = :id)
    limit 1 for update
) as cancelled on true
left join (
    select state.* from holdfast_completed as state where seq = (select seq from holdfast_job where id = :id)
    limit 1 for update
) as completed on true
where job.id = :id;

-- name: seen_jobs
-- Without locks: several jobs, in any state. The snapshot of a transaction may be older than a lane.
select {locked_job}
from holdfast_job as job
left join holdfast_lane as lane on lane.lane_id = job.lane_id
left join holdfast_running as running on running.seq = job.seq
left join holdfast_ready as ready on ready.lane_id = job.lane_id and ready.turn = job.turn and ready.seq = job.seq
left join holdfast_scheduled as scheduled
    on scheduled.run_at = job.turn + job.priority * {priority_step} and scheduled.seq = job.seq
left join holdfast_blocked as blocked on blocked.seq = job.seq
left join holdfast_failed as failed on failed.seq = job.seq
left join holdfast_cancelled as cancelled on cancelled.seq = job.seq
left join holdfast_completed as completed on completed.seq = job.seq
where job.id in (:ids);

-- name: ended_among
select seq, 'completed' as state from holdfast_completed where seq in (:seqs)
union all
select seq, 'failed' from holdfast_failed where seq in (:seqs)
union all
select seq, 'cancelled' from holdfast_cancelled where seq in (:seqs);

-- name: has_job
select 1 from holdfast_job where seq = :seq lock in share mode;

-- name: hold_{state}: running, blocked, completed, failed, cancelled
-- Lock the row of a job, if it is in this table.
select 1 from holdfast_{state} where seq = :seq for update;

-- name: hold_ready
select 1 from holdfast_ready where lane_id = :lane_id and turn = :turn and seq = :seq for update;

-- name: hold_scheduled
select 1 from holdfast_scheduled where run_at = :run_at and seq = :seq for update;

-- name: ended
-- The outcomes that the holders of these leases wrote under their fences. May return other pairs of seq and fence too.
select seq, fence, 'completed' as outcome from holdfast_completed where seq in (:seqs) and fence in (:fences)
union all
select seq, fence, outcome from holdfast_attempt where seq in (:seqs) and fence in (:fences) and by_holder;

-- name: put_ready
insert into holdfast_ready (lane_id, turn, seq, payload_bytes, attempt, excused, interrupted, lost, followed)
values (
    :lane_id, :turn, :seq, (select payload_bytes from holdfast_job where seq = :seq), :attempt, :excused, :interrupted,
    :lost, :followed
);

-- name: clear_isolation
-- For the other leases of workers that have lost some. Waiting for locked rows could deadlock: such a row stays as it
-- is, and at worst its job is blamed for one loss.
update (
    select seq from holdfast_running where worker_id in (:worker_ids) and isolated limit 1000000 for update skip locked
) as given
straight_join holdfast_running as running force index (primary) on running.seq = given.seq
set running.isolated = 0;

-- name: count_events
insert into holdfast_tally (minute_at, lane_id, enqueued, retried, failed, cancelled, lost)
values (:minute_at, :lane_id, :enqueued, :retried, :failed, :cancelled, :lost);
