-- Enqueue, claim and complete jobs. Every statement that writes under a lease carries its fence.
--
-- A statement that locks names its rows: as a range of numbers without a gap, with the limit that it has (without one,
-- the server continues to the row behind the range, and waits for its lock); or by `straight_join` from a JSON list, with
-- the index forced: of a small table the planner would lock every row.

-- name: find_lanes
select lane_id, queue, task from holdfast_lane where queue in (:queues) and task in (:tasks);

-- name: lanes_by_id
select lane_id, queue, task from holdfast_lane where lane_id in (:lane_ids);

-- name: add_queue
insert into holdfast_queue (queue) values (:queue) on duplicate key update queue = holdfast_queue.queue;

-- name: add_lane
insert into holdfast_lane (queue, task) values (:queue, :task) on duplicate key update queue = holdfast_lane.queue;

-- name: known_ids
select id from holdfast_job where id in (:ids);

-- name: insert_new
-- The clock is read here, so that an enqueue is one trip; the statements that follow compare with this reading, because
-- a later one may be earlier. The numbers of the rows follow one another from `last_insert_id()` on, in the steps of the
-- server.
insert into holdfast_job (
    id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, payload_bytes
) values (
    :id, :lane_id, :payload, :headers, :priority, :max_attempts, :timeout, {now},
    coalesce(:run_at, {now} + :delay) - :priority * {priority_step}, :payload_bytes
);

-- name: new_to_ready
insert into holdfast_ready (lane_id, turn, seq, payload_bytes)
select lane_id, turn, seq, payload_bytes from holdfast_job
where seq between last_insert_id() and last_insert_id() + (:count - 1) * @@auto_increment_increment
  and (seq - last_insert_id()) % @@auto_increment_increment = 0 and turn + priority * {priority_step} <= enqueued_at
order by seq limit :count;

-- name: new_to_scheduled
insert into holdfast_scheduled (run_at, seq, retrying)
select turn + priority * {priority_step}, seq, 0 from holdfast_job
where seq between last_insert_id() and last_insert_id() + (:count - 1) * @@auto_increment_increment
  and (seq - last_insert_id()) % @@auto_increment_increment = 0 and turn + priority * {priority_step} > enqueued_at
order by seq limit :count;

-- name: new_places
-- A place in each lane before which none of the new jobs is.
select lane_id, min(turn), min(seq) from holdfast_job
where seq between last_insert_id() and last_insert_id() + (:count - 1) * @@auto_increment_increment
  and (seq - last_insert_id()) % @@auto_increment_increment = 0
group by lane_id;

-- name: count_enqueued
insert into holdfast_tally (minute_at, lane_id, enqueued) values ({now} - {now} % {minute}, :lane_id, :enqueued);

-- name: clock_and_step
select {now}, @@auto_increment_increment;

-- name: insert_jobs
insert into holdfast_job (
    id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, payload_bytes, order_key,
    limit_key, unique_key, unique_scope
) values (
    :id, :lane_id, :payload, :headers, :priority, :max_attempts, :timeout, :enqueued_at, :turn, :payload_bytes, :order_key,
    :limit_key, :unique_key, :unique_scope
);

-- name: insert_ready
insert into holdfast_ready (lane_id, turn, seq, payload_bytes, followed)
values (:lane_id, :turn, :seq, :payload_bytes, :followed);

-- name: insert_scheduled
insert into holdfast_scheduled (run_at, seq, retrying, followed) values (:run_at, :seq, 0, :followed);

-- name: insert_blocked
insert into holdfast_blocked (key_id, place, seq) values (:key_id, :seq, :seq);

-- name: claim_lanes
-- The lanes that a worker may claim from, and whether a limit concerns them; of those, only if they have jobs.
select lane.lane_id, lane.queue, lane.task,
       (queue.max_running is not null or queue.rate_jobs is not null
        or task.max_running is not null or task.rate_jobs is not null
        or task.key_max_running is not null or task.key_rate_jobs is not null) as is_limited
from holdfast_lane as lane
straight_join holdfast_queue as queue on queue.queue = lane.queue
left join holdfast_task as task on task.task = lane.task
where not queue.paused and not coalesce(task.paused, 0) and lane.task in (:tasks)
  and (:any_queue or lane.queue in (:queues))
  and (coalesce(queue.max_running, queue.rate_jobs, task.max_running, task.rate_jobs, task.key_max_running,
                task.key_rate_jobs) is null
       or (select 1 from holdfast_ready where lane_id = lane.lane_id limit 1) is not null);

-- name: lane_front
-- Without locks: how many jobs of each lane are among the first over all lanes. The floor is spelled out: as a
-- comparison of pairs it would not bound the range.
select turn, seq, lane_id from holdfast_ready force index (primary)
where lane_id = :lane_id and (turn > :turn or (turn = :turn and seq >= :seq))
order by turn, seq limit :limit;

-- name: lock_front
select turn, seq, lane_id, payload_bytes, attempt, excused, interrupted, lost
from holdfast_ready force index (primary)
where lane_id = :lane_id and (turn > :turn or (turn = :turn and seq >= :seq))
order by turn, seq limit :limit for update skip locked;

-- name: take_fence
-- After the rows are locked: the job's previous claim, which has committed, took its fence earlier.
insert into holdfast_fence () values ();

-- name: lease_range
insert into holdfast_running (
    seq, lane_id, fence, worker_id, lease_until, lease_span, started_at, attempt, excused, interrupted, lost, isolated,
    followed
)
select seq, lane_id, last_insert_id(), :worker_id, {now} + :span, :span, {now}, attempt + 1, excused, interrupted, lost,
       lost > 0 and :isolates, followed
from holdfast_ready where lane_id = :lane_id and turn = :turn and seq between :first and :last
order by seq limit :count;

-- name: leave_front_range
delete from holdfast_ready where lane_id = :lane_id and turn = :turn and seq between :first and :last
order by seq limit :count;

-- name: lease_listed
insert into holdfast_running (
    seq, lane_id, fence, worker_id, lease_until, lease_span, started_at, attempt, excused, interrupted, lost, isolated,
    followed
)
select ready.seq, ready.lane_id, last_insert_id(), :worker_id, {now} + :span, :span, {now}, ready.attempt + 1,
       ready.excused, ready.interrupted, ready.lost, ready.lost > 0 and :isolates, ready.followed
from (
    select * from json_table(:places, '$[*]' columns (turn bigint path '$[0]', seq bigint path '$[1]')) as listed
) as given
straight_join holdfast_ready as ready force index (primary)
    on ready.lane_id = :lane_id and ready.turn = given.turn and ready.seq = given.seq;

-- name: leave_front_listed
delete ready from (
    select * from json_table(:places, '$[*]' columns (turn bigint path '$[0]', seq bigint path '$[1]')) as listed
) as given
straight_join holdfast_ready as ready force index (primary)
    on ready.lane_id = :lane_id and ready.turn = given.turn and ready.seq = given.seq;

-- name: bodies
select seq, id, payload, headers, priority, max_attempts, timeout, enqueued_at, order_key, last_insert_id()
from holdfast_job where seq in (:seqs);

-- name: lock_queue_limits
-- The limits of queues that this worker's claims may concern, and that no other session is claiming under.
select queue from holdfast_queue
where (max_running is not null or rate_jobs is not null) and (:any_queue or queue in (:queues))
order by queue for update skip locked;

-- name: lock_task_limits
select task from holdfast_task
where (max_running is not null or rate_jobs is not null) and task in (:tasks)
order by task for update skip locked;

-- name: all_changed
-- Fails unless the statement before it has changed as many rows as it had to: so a commit may follow in the same trip.
select case when row_count() = :count then 1 else (select 1 union select 2) end;

-- name: complete_range
-- The delete that follows decides: this one locks nothing that it reads.
insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at)
select seq, fence, worker_id, attempt, started_at, {now} from holdfast_running
where seq between :first and :last and fence = :fence and followed = 0
order by seq limit :count;

-- name: count_completed_range
insert into holdfast_tally (minute_at, lane_id, completed, run_time)
select {now} - {now} % {minute}, lane_id, count(*), sum({now} - started_at) from holdfast_running
where seq between :first and :last and fence = :fence
group by lane_id;

-- name: leave_range
delete from holdfast_running where seq between :first and :last and fence = :fence and followed = 0
order by seq limit :count;

-- name: complete_held
-- Of a lease that the same transaction has locked; nothing is written if the job is followed. By its full key: under
-- repeatable read a range would lock the rows beside it.
insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at, result)
select seq, fence, worker_id, attempt, started_at, {now}, :result from holdfast_running
where seq = :seq and fence = :fence and followed = 0;

-- name: count_completed_held
insert into holdfast_tally (minute_at, lane_id, completed, run_time)
select {now} - {now} % {minute}, lane_id, 1, {now} - started_at from holdfast_running
where seq = :seq and fence = :fence;

-- name: leave_held
delete from holdfast_running where seq = :seq and fence = :fence;

-- name: complete_listed
insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at)
select running.seq, running.fence, running.worker_id, running.attempt, running.started_at, {now}
from {given_seqs}
straight_join holdfast_running as running force index (primary)
    on running.seq = given.seq and running.fence = :fence and running.followed = 0;

-- name: count_completed_listed
insert into holdfast_tally (minute_at, lane_id, completed, run_time)
select {now} - {now} % {minute}, running.lane_id, count(*), sum({now} - running.started_at)
from {given_seqs}
straight_join holdfast_running as running force index (primary)
    on running.seq = given.seq and running.fence = :fence
group by running.lane_id;

-- name: leave_listed
delete running from {given_seqs}
straight_join holdfast_running as running force index (primary)
    on running.seq = given.seq and running.fence = :fence and running.followed = 0;

-- name: held_among
-- Locks the rows of these leases; the caller compares the pairs.
select running.seq, running.fence, running.lane_id, running.worker_id, running.attempt, running.started_at,
       running.followed
from {given_seqs}
straight_join holdfast_running as running force index (primary) on running.seq = given.seq
where running.fence in (:fences) for update;

-- name: held_seqs
-- The caller compares the pairs.
select running.seq
from {given_seqs}
straight_join holdfast_running as running force index (primary) on running.seq = given.seq
where running.fence in (:fences);

-- name: free_seqs
-- The same, without rows that other sessions have locked; the others are locked here.
select running.seq
from {given_seqs}
straight_join holdfast_running as running force index (primary) on running.seq = given.seq
where running.fence in (:fences) for update skip locked;

-- name: put_completed
insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at, result)
values (:seq, :fence, :worker_id, :attempt, :started_at, {now}, :result);

-- name: count_completed
insert into holdfast_tally (minute_at, lane_id, completed, run_time)
values ({now} - {now} % {minute}, :lane_id, :completed, :completed * {now} - :started);

-- name: due_jobs
-- A row that another session promotes is skipped.
select due.run_at, due.seq, job.lane_id, job.turn, due.attempt, due.excused, due.interrupted, due.lost, due.followed,
       job.limit_key is not null as is_limited
from (
    select run_at, seq, attempt, excused, interrupted, lost, followed from holdfast_scheduled force index (primary)
    where run_at <= {now} order by run_at, seq limit :limit for update skip locked
) as due
straight_join holdfast_job as job on job.seq = due.seq;
