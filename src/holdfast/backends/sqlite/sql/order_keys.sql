-- Order keys: which job is the head, and which one follows. The table is named holdfast_key_line.

-- name: add_order_key
insert into holdfast_key_line (queue, order_key) values (:queue, :order_key) on conflict (queue, order_key) do nothing;

-- name: add_order_keys
-- The keys of the jobs after a seq; they have no head yet.
insert into holdfast_key_line (queue, order_key)
select lane.queue, job.order_key
from holdfast_job as job cross join holdfast_lane as lane on lane.lane_id = job.lane_id
where job.seq > :after and job.order_key is not null
on conflict (queue, order_key) do nothing;

-- name: new_to_blocked
insert into holdfast_blocked (line_id, place, seq)
select line.line_id, job.seq, job.seq
from holdfast_job as job
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
cross join holdfast_key_line as line on line.queue = lane.queue and line.order_key = job.order_key
where job.seq > :after;

-- name: vacant_order_keys
-- For each job after a seq, its key if it has no head.
select state.line_id from holdfast_blocked as state
where state.seq > :after and (select head_seq from holdfast_key_line where line_id = state.line_id) is null;

-- name: lock_order_keys
-- The order keys of these jobs.
select line.line_id, coalesce(line.head_seq, 0) as head_seq, job.seq
from json_each(:seqs) as given
cross join holdfast_job as job on job.seq = given.value
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
cross join holdfast_key_line as line on line.queue = lane.queue and line.order_key = job.order_key;

-- name: next_place
update holdfast_meta set seq = seq + 1 where only_row = 1;

-- name: put_blocked
-- At the end of its key: behind all jobs enqueued before.
insert into holdfast_blocked (line_id, place, seq, attempt, excused, interrupted, lost)
select :line_id, meta.seq, :seq, :attempt, :excused, :interrupted, :lost from holdfast_meta as meta where only_row = 1;

-- name: first_blocked
-- The first waiting job of each of these order keys.
select state.line_id, state.seq, job.lane_id, job.turn, job.priority, state.attempt, state.excused, state.interrupted,
       state.lost, :now as now, true as keyed, false as retrying
from json_each(:line_ids) as given
cross join holdfast_blocked as state on state.line_id = given.value and state.place = (
    select place from holdfast_blocked where line_id = given.value order by place limit 1
)
cross join holdfast_job as job on job.seq = state.seq;

-- name: set_head
update holdfast_key_line set head_seq = :seq where line_id = :line_id;

-- name: drop_order_key
delete from holdfast_key_line where line_id = :line_id;
