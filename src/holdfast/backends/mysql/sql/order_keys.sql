-- Order keys: which job is the head, and which one follows. A key is changed only by a transaction that has locked its
-- row; keys are locked in the order of queue and key, after the rows of the jobs that left them.

-- name: add_order_key
insert into holdfast_key_head (queue, order_key) values (:queue, :order_key)
on duplicate key update head_seq = holdfast_key_head.head_seq;

-- name: known_order_key
select key_id from holdfast_key_head where queue = :queue and order_key = :order_key;

-- name: lock_order_key
-- By its number: by its name, MariaDB would lock the gap before it, too.
select key_id, head_seq from holdfast_key_head where key_id = :key_id for update;

-- name: new_order_key
insert into holdfast_key_head (queue, order_key) values (:queue, :order_key);

-- name: take_order_key
select key_id, head_seq from holdfast_key_head force index (by_name)
where queue = :queue and order_key = :order_key for update;

-- name: lock_order_keys
-- The keys of these jobs, in the order in which every transaction locks them; whether the jobs have children, and limit
-- keys.
select head.key_id, coalesce(head.head_seq, 0) as head_seq, past.seq,
       (select 1 from holdfast_parent_link as link where link.parent_seq = past.seq limit 1) is not null as is_parent,
       past.limit_key is not null as is_limited
from (
    select job.seq, lane.queue, job.order_key, job.limit_key
    from holdfast_job as job straight_join holdfast_lane as lane on lane.lane_id = job.lane_id
    where job.seq in (:seqs) order by lane.queue, job.order_key limit 1000000
) as past
left join holdfast_key_head as head force index (by_name)
    on head.queue = past.queue and head.order_key = past.order_key
for update;

-- name: keys_of_jobs
-- Without locks: the keys of some jobs, and whether they have children.
select job.seq, lane.queue, lane.lane_id, job.order_key, job.limit_key,
       (select 1 from holdfast_parent_link as link where link.parent_seq = job.seq limit 1) is not null as is_parent
from holdfast_job as job
straight_join holdfast_lane as lane on lane.lane_id = job.lane_id
where job.seq in (:seqs);

-- name: order_keys_of
select head.key_id, job.seq from holdfast_job as job
straight_join holdfast_lane as lane on lane.lane_id = job.lane_id
straight_join holdfast_key_head as head on head.queue = lane.queue and head.order_key = job.order_key
where job.seq in (:seqs);

-- name: free_order_keys
-- The same, without keys that other sessions have locked; the others are locked here.
select head.key_id, past.seq
from (
    select job.seq, lane.queue, job.order_key
    from holdfast_job as job straight_join holdfast_lane as lane on lane.lane_id = job.lane_id
    where job.seq in (:seqs) order by lane.queue, job.order_key limit 1000000
) as past
straight_join holdfast_key_head as head force index (by_name)
    on head.queue = past.queue and head.order_key = past.order_key
for update skip locked;

-- name: next_place
-- A number from the counter of jobs, behind those of all earlier enqueues; the row is never seen.
insert into holdfast_job (id, lane_id, payload, priority, max_attempts, enqueued_at, turn, payload_bytes)
values (uuid(), 0, '', 0, 0, 0, 0, 0);
delete from holdfast_job where seq = last_insert_id();

-- name: put_blocked
-- At the end of its key: after the places of all earlier enqueues.
insert into holdfast_blocked (key_id, place, seq, attempt, excused, interrupted, lost, followed)
select :key_id, last_insert_id(), :seq, :attempt, :excused, :interrupted, :lost, :followed;

-- part: first_columns
first.key_id, first.seq, job.lane_id, job.turn, job.priority, first.attempt, first.excused, first.interrupted,
       first.lost, {now} as now, 1 as followed, 0 as retrying;

-- name: first_of_key
-- The first waiting job of a locked key. Waits for one that is being cancelled: then that one is the first after all, or
-- the next one is.
select {first_columns}
from (
    select key_id, seq, attempt, excused, interrupted, lost from holdfast_blocked force index (by_key)
    where key_id = :key_id order by place limit 1 for update
) as first
straight_join holdfast_job as job force index (primary) on job.seq = first.seq lock in share mode;

-- name: next_of_key
-- Without a lock: the next waiting job of a key behind a place.
select place, seq from holdfast_blocked force index (by_key)
where key_id = :key_id and place > :place order by place limit 1;

-- name: first_by_seq
-- By the number of the job: no gap of a key is locked. Reads its body with a lock, because a snapshot may be older than
-- the job.
select {first_columns}
from (
    select key_id, seq, attempt, excused, interrupted, lost from holdfast_blocked where seq = :seq for update
) as first
straight_join holdfast_job as job force index (primary) on job.seq = first.seq lock in share mode;

-- name: set_head
update holdfast_key_head set head_seq = :seq where key_id = :key_id;

-- name: drop_order_key
delete from holdfast_key_head where key_id = :key_id;
