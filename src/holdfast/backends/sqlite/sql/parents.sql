-- Jobs that wait for parents.

-- name: new_to_waiting
insert into holdfast_blocked (key_id, place, seq) select 0, value, value from json_each(:seqs);

-- name: lock_children
select job.id, job.seq, job.lane_id, lane.queue, lane.task, job.order_key, job.limit_key,
       case when blocked.seq is not null then 'blocked' else 'cancelled' end as state, job.priority, job.max_attempts,
       job.turn, coalesce(blocked.attempt, cancelled.attempt) as attempt, coalesce(blocked.excused, 0) as excused,
       coalesce(blocked.interrupted, 0) as interrupted, coalesce(blocked.lost, cancelled.lost) as lost,
       coalesce(blocked.followed, 0) as followed, 0 as retrying, 0 as isolated, 0 as cancel_asked,
       null as cancel_reason, 0 as fence, null as worker_id, null as started_at, null as lease_span,
       cancelled.finished_at, cancelled.reason, 0 as held, :now as token
from json_each(:seqs) as given
cross join holdfast_job as job on job.seq = given.value
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
left join holdfast_blocked as blocked on blocked.seq = job.seq and blocked.key_id = 0
left join holdfast_cancelled as cancelled on cancelled.seq = job.seq
where blocked.seq is not null
   or (cancelled.seq is not null and exists (
       select 1 from holdfast_parent_link as link where link.child_seq = job.seq and link.broken
   ));
