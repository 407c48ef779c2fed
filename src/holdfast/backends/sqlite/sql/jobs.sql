-- The hot paths: enqueue, claim, complete, promote. Every statement that writes under a lease carries its fence.

-- name: take_seqs
update holdfast_meta set seq = seq + :count where only_row = 1 returning seq;

-- name: find_lane
select lane_id from holdfast_lane where queue = :queue and task = :task;

-- name: add_lane
insert into holdfast_lane (queue, task) values (:queue, :task) on conflict (queue, task) do nothing;

-- name: add_queue
insert into holdfast_queue (queue) values (:queue) on conflict (queue) do nothing;

-- name: known_seq
select seq from holdfast_job where id = :id;

-- name: insert_job
insert into holdfast_job (
    seq, id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, order_key, limit_key,
    unique_key, unique_scope
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: new_to_ready
-- The jobs after a seq that are due and have no key.
insert into holdfast_ready (lane_id, turn, seq) select lane_id, turn, seq from holdfast_job
where seq > :after and order_key is null and limit_key is null and turn + priority * :priority_step <= :now;

-- name: new_to_scheduled
insert into holdfast_scheduled (run_at, seq, retrying)
select turn + priority * :priority_step, seq, 0 from holdfast_job
where seq > :after and order_key is null and turn + priority * :priority_step > :now;

-- name: claimable_lanes
-- The lanes that a worker may claim from, each with the turn of its first job, and whether limits concern it; without
-- empty lanes.
select lane_id, queue, task, head, is_limited from (
    select lane_id, lane.queue as queue, task,
           (select turn from holdfast_ready where lane_id = lane.lane_id order by turn, seq limit 1) as head,
           max_running is not null or rate_jobs is not null or exists (
               select 1 from holdfast_task
               where task = lane.task and (
                   max_running is not null or rate_jobs is not null
                   or key_max_running is not null or key_rate_jobs is not null
               )
           ) as is_limited
    from holdfast_lane as lane
    join holdfast_queue using (queue)
    where paused = 0
      and not exists (select 1 from holdfast_task where task = lane.task and paused)
      and task in (select value from json_each(:tasks))
      and (:queues is null or lane.queue in (select value from json_each(:queues)))
) where head is not null
order by head;

-- name: claim_limits
-- As `limits`, for claims: the leases are counted by the next two statements, which stop at the limit. (`cross join`: in
-- this order, without an index that would be made from all leases each time.)
select 'queue' as kind, queue as name, max_running, rate_jobs, rate_span, rate_burst, rate_at, 0 as running, :now as now
from holdfast_queue where max_running is not null or rate_jobs is not null
union all
select 'task', task, max_running, rate_jobs, rate_span, rate_burst, rate_at, 0, :now
from holdfast_task where max_running is not null or rate_jobs is not null
union all
select 'key', task, key_max_running, key_rate_jobs, key_rate_span, key_rate_burst, 0, 0, :now
from holdfast_task where key_max_running is not null or key_rate_jobs is not null;

-- name: running_of_queue
select count(*) from (
    select 1 from holdfast_running as running cross join holdfast_lane as lane on lane.lane_id = running.lane_id
    where lane.queue = :name limit :most
);

-- name: running_of_task
select count(*) from (
    select 1 from holdfast_running as running cross join holdfast_lane as lane on lane.lane_id = running.lane_id
    where lane.task = :name limit :most
);

-- name: front_places
select turn, seq, lane_id from holdfast_ready where lane_id = :lane_id order by turn, seq limit :limit;

-- name: take_fence
update holdfast_meta set fence = fence + 1 where only_row = 1 returning fence;

-- name: front_of_lane
-- The first jobs of a lane up to a turn, as lines of JSON in one text: one step of SQLite, so the GIL is released once
-- per batch and not once per row (next to a busy event loop, reading row by row was 20 times slower). Unlike
-- json_group_array, group_concat stops as soon as the text exceeds the limit of the connection.
select group_concat(json_array(
    job.id, job.seq, :queue, :task, job.payload,
    case when json_valid(job.headers) then json(job.headers) end,
    job.priority, job.max_attempts, job.timeout, job.enqueued_at,
    front.turn, front.attempt + 1, front.excused, front.interrupted, front.lost, :fence, job.order_key
), char(10))
from (
    select turn, seq, attempt, excused, interrupted, lost from holdfast_ready
    where lane_id = :lane_id and turn <= :last_turn order by turn, seq limit :limit
) as front
cross join holdfast_job as job on job.seq = front.seq;

-- name: front_of_lane_by_row
-- The same, row by row and with texts as bytes: for lanes with a damaged row, which must not hide the other jobs, and
-- for payloads that together exceed the bound of a claim.
select job.id, job.seq, cast(job.payload as blob), cast(job.headers as blob),
       job.priority, job.max_attempts, job.timeout, job.enqueued_at,
       front.turn, front.attempt + 1, front.excused, front.interrupted, front.lost, job.order_key
from (
    select turn, seq, attempt, excused, interrupted, lost from holdfast_ready
    where lane_id = :lane_id and turn <= :last_turn order by turn, seq limit :limit
) as front
cross join holdfast_job as job on job.seq = front.seq
order by front.turn, front.seq;

-- name: lease_front
-- The rows up to (turn, seq) are exactly those that front_of_lane has read: the write lock is held in between.
insert into holdfast_running (
    seq, lane_id, fence, worker_id, lease_until, lease_span, started_at, attempt, excused, interrupted, lost, isolated,
    followed
)
select seq, lane_id, :fence, :worker_id, :now + :span, :span, :now, attempt + 1, excused, interrupted, lost,
       lost > 0 and :isolates, followed
from holdfast_ready
where lane_id = :lane_id and (turn, seq) <= (:turn, :seq);

-- name: leave_front
delete from holdfast_ready where lane_id = :lane_id and (turn, seq) <= (:turn, :seq);

-- name: complete_many
insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at)
select seq, fence, worker_id, attempt, started_at, :now
from json_each(:seqs) cross join holdfast_running on seq = value and fence = :fence;

-- name: held_under
select json_group_array(seq) from json_each(:seqs) cross join holdfast_running on seq = value and fence = :fence;

-- name: complete_one
insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at, result)
select seq, fence, worker_id, attempt, started_at, :now, :result
from holdfast_running where seq = :seq and fence = :fence;

-- name: count_completed
insert into holdfast_count (minute_at, lane_id, completed, run_time)
select :minute, lane_id, count(*), sum(:now - started_at)
from json_each(:seqs) cross join holdfast_running on seq = value and fence = :fence
group by lane_id
on conflict (minute_at, lane_id) do update
set completed = completed + excluded.completed, run_time = run_time + excluded.run_time;

-- name: leave_completed
delete from holdfast_running where seq in (select value from json_each(:seqs)) and fence = :fence and followed = :followed;

-- name: due_jobs
select scheduled.run_at, scheduled.seq, job.lane_id, job.turn, attempt, excused, interrupted, lost, followed,
       job.limit_key is not null as is_limited
from (select * from holdfast_scheduled where run_at <= :now order by run_at, seq limit :limit) as scheduled
cross join holdfast_job as job on job.seq = scheduled.seq;
