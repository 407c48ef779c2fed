-- Jobs that wait for parents.

-- name: lock_children
-- The caller sorts the seqs, so that two such calls cannot deadlock. A child that moves to another table while this
-- waits for its row is left out, and so is one that was cancelled by an operator since it was read.
select job.id, given.seq, job.lane_id, lane.queue, lane.task, job.order_key, job.limit_key,
       case when blocked.seq is not null then 'blocked' else 'cancelled' end as state, job.priority, job.max_attempts,
       job.turn, coalesce(blocked.attempt, cancelled.attempt) as attempt, coalesce(blocked.excused, 0) as excused,
       coalesce(blocked.interrupted, 0) as interrupted, coalesce(blocked.lost, cancelled.lost) as lost,
       coalesce(blocked.followed, 0) as followed, 0 as retrying, 0 as isolated, 0 as cancel_asked,
       null as cancel_reason, 0 as fence, null as worker_id, null as started_at, null as lease_span,
       cancelled.finished_at, cancelled.reason, 0 as held, {now} as token
from {given_seqs}
left join (
    select state.* from {given_seqs}
    straight_join holdfast_blocked as state force index (primary) on state.seq = given.seq
    where state.key_id = 0 limit 1000000 for update
) as blocked on blocked.seq = given.seq
left join (
    select state.* from {given_seqs}
    straight_join holdfast_cancelled as state force index (primary) on state.seq = given.seq
    where (select 1 from holdfast_parent_link as link where link.child_seq = state.seq and link.broken limit 1) is not null
    limit 1000000 for update
) as cancelled on cancelled.seq = given.seq
straight_join holdfast_job as job on job.seq = given.seq
straight_join holdfast_lane as lane on lane.lane_id = job.lane_id
where blocked.seq is not null or cancelled.seq is not null;

-- name: forget_changes
delete gone from (select * from json_table('[:change_ids]', '$[*]' columns (change_id bigint path '$')) as listed) as given
straight_join holdfast_parent_change as gone force index (primary) on gone.change_id = given.change_id;

-- name: prune_links
delete gone from {given_seqs}
straight_join holdfast_parent_link as gone force index (primary) on gone.child_seq = given.seq;
