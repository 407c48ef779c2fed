-- The rows of jobs: read, ended, moved from state to state. The write lock is held for the whole transaction, so a job
-- that was found held under its fence stays held until the end.

-- name: lock_leases
-- May also return a row that combines the seq of one lease with the fence of another: the caller compares the pairs. (Two
-- lists cannot be joined by their indexes without a scan of one for each element of the other.)
select job.id, running.seq, running.lane_id, lane.queue, lane.task, job.order_key, job.limit_key, 'running' as state,
       job.priority, job.max_attempts, job.turn, running.attempt, running.excused, running.interrupted,
       running.lost, running.followed, 0 as retrying, running.isolated, running.cancel_asked, running.cancel_reason,
       running.fence, running.worker_id, running.started_at, running.lease_span, null as finished_at, null as reason,
       0 as held, :now as token
from json_each(:seqs) as given
cross join holdfast_running as running on running.seq = given.value
cross join holdfast_job as job on job.seq = running.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
where running.fence in (select value from json_each(:fences));

-- name: lock_expired
select job.id, running.seq, running.lane_id, lane.queue, lane.task, job.order_key, job.limit_key, 'running' as state,
       job.priority, job.max_attempts, job.turn, running.attempt, running.excused, running.interrupted,
       running.lost, running.followed, 0 as retrying, running.isolated, running.cancel_asked, running.cancel_reason,
       running.fence, running.worker_id, running.started_at, running.lease_span, null as finished_at, null as reason,
       (select count(*) from holdfast_running where worker_id = running.worker_id) as held, :now as token
from (
    select * from holdfast_running
    where lease_until <= :now and (:longest is null or lease_span <= :longest)
    order by lease_until limit :limit
) as running
cross join holdfast_job as job on job.seq = running.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id;

-- name: lock_of_worker
select job.id, running.seq, running.lane_id, lane.queue, lane.task, job.order_key, job.limit_key, 'running' as state,
       job.priority, job.max_attempts, job.turn, running.attempt, running.excused, running.interrupted,
       running.lost, running.followed, 0 as retrying, running.isolated, running.cancel_asked, running.cancel_reason,
       running.fence, running.worker_id, running.started_at, running.lease_span, null as finished_at, null as reason,
       (select count(*) from holdfast_running where worker_id = running.worker_id) as held, :now as token
from (
    select * from holdfast_running where worker_id = :worker_id order by seq limit :limit
) as running
cross join holdfast_job as job on job.seq = running.seq
cross join holdfast_lane as lane on lane.lane_id = job.lane_id;

-- name: ended
-- The outcomes that the holders of these leases have written under their fences, in a call whose reply was lost. May
-- return other pairs of seq and fence too, like `lock_leases`.
select completed.seq, completed.fence, 'completed' as outcome
from json_each(:seqs) as given
cross join holdfast_completed as completed on completed.seq = given.value
where completed.fence in (select value from json_each(:fences))
union all
select ended.seq, ended.fence, ended.outcome
from json_each(:seqs) as given
cross join holdfast_attempt as ended on ended.seq = given.value
where ended.by_holder and ended.fence in (select value from json_each(:fences));

-- name: clear_isolation
update holdfast_running set isolated = 0
where isolated = 1 and worker_id in (select value from json_each(:worker_ids));

-- name: count_events
insert into holdfast_count (minute_at, lane_id, enqueued, retried, failed, cancelled, lost)
values (:minute_at, :lane_id, :enqueued, :retried, :failed, :cancelled, :lost)
on conflict (minute_at, lane_id) do update
set enqueued = enqueued + excluded.enqueued, retried = retried + excluded.retried, failed = failed + excluded.failed,
    cancelled = cancelled + excluded.cancelled, lost = lost + excluded.lost;
