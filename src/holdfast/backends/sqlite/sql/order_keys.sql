-- Order keys: which job is the head, and which one follows. The table is named holdfast_key_head.

-- name: add_order_key
insert into holdfast_key_head (queue, order_key) values (:queue, :order_key) on conflict (queue, order_key) do nothing;

-- name: add_order_keys
-- The keys of the jobs after a seq; they have no head yet.
insert into holdfast_key_head (queue, order_key)
select lane.queue, job.order_key
from holdfast_job as job cross join holdfast_lane as lane on lane.lane_id = job.lane_id
where job.seq > :after and job.order_key is not null
on conflict (queue, order_key) do nothing;

-- name: new_to_blocked
insert into holdfast_blocked (key_id, place, seq)
select head.key_id, job.seq, job.seq
from holdfast_job as job
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
cross join holdfast_key_head as head on head.queue = lane.queue and head.order_key = job.order_key
where job.seq > :after;

-- name: vacant_order_keys
-- For each job after a seq, its key if it has no head.
select state.key_id from holdfast_blocked as state
where state.seq > :after and (select head_seq from holdfast_key_head where key_id = state.key_id) is null;

-- name: lock_order_keys
-- The order keys of these jobs, whether the jobs have children, and limit keys.
select head.key_id, coalesce(head.head_seq, 0) as head_seq, job.seq,
       (select 1 from holdfast_parent_link as link where link.parent_seq = job.seq limit 1) is not null as is_parent,
       job.limit_key is not null as is_limited
from json_each(:seqs) as given
cross join holdfast_job as job on job.seq = given.value
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
left join holdfast_key_head as head on head.queue = lane.queue and head.order_key = job.order_key;

-- name: next_place
update holdfast_meta set seq = seq + 1 where only_row = 1;

-- name: put_blocked
-- At the end of its key: behind all jobs enqueued before.
insert into holdfast_blocked (key_id, place, seq, attempt, excused, interrupted, lost, followed)
select :key_id, meta.seq, :seq, :attempt, :excused, :interrupted, :lost, :followed from holdfast_meta as meta where only_row = 1;

-- name: first_blocked
-- The first waiting job of each of these order keys.
select state.key_id, state.seq, job.lane_id, job.turn, job.priority, state.attempt, state.excused, state.interrupted,
       state.lost, :now as now, true as followed, false as retrying
from json_each(:key_ids) as given
cross join holdfast_blocked as state on state.key_id = given.value and state.place = (
    select place from holdfast_blocked where key_id = given.value order by place limit 1
)
cross join holdfast_job as job on job.seq = state.seq;

-- name: set_head
update holdfast_key_head set head_seq = :seq where key_id = :key_id;

-- name: drop_order_key
delete from holdfast_key_head where key_id = :key_id;
