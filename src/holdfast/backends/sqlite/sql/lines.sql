-- The lines of order keys: who stands in them, and who comes up.

-- name: line_of
select line_id, head_seq from holdfast_key_line where queue = :queue and order_key = :order_key;

-- name: add_line
insert into holdfast_key_line (queue, order_key) values (:queue, :order_key) returning line_id;

-- name: insert_blocked
insert into holdfast_blocked (line_id, place, seq) values (?, ?, ?);

-- name: block
insert into holdfast_blocked (line_id, place, seq, attempt, excused, interrupted, lost)
values (:line_id, :place, :seq, :attempt, :excused, :interrupted, :lost);

-- name: take_blocked
delete from holdfast_blocked where seq = :seq returning attempt, excused, interrupted, lost;

-- name: line_of_head
select line.line_id from holdfast_job as job
cross join holdfast_lane as lane on lane.lane_id = job.lane_id
cross join holdfast_key_line as line on line.queue = lane.queue and line.order_key = job.order_key
where job.seq = :seq and line.head_seq = :seq;

-- name: first_blocked
select state.place, state.seq, job.lane_id, job.turn, job.priority,
       state.attempt, state.excused, state.interrupted, state.lost
from (select * from holdfast_blocked where line_id = :line_id order by place limit 1) as state
cross join holdfast_job as job on job.seq = state.seq;

-- name: leave_blocked
delete from holdfast_blocked where line_id = :line_id and place = :place;

-- name: set_head
update holdfast_key_line set head_seq = :seq where line_id = :line_id;

-- name: drop_line
delete from holdfast_key_line where line_id = :line_id;
