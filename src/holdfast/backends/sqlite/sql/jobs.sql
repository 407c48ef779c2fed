-- Statements on jobs. Every one that writes under a lease carries its fence.

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
insert into holdfast_job (seq, id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_any_job
insert into holdfast_job (
    seq, id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, order_key
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_ready
insert into holdfast_ready (lane_id, turn, seq) values (?, ?, ?);

-- name: new_to_ready
-- All jobs after a seq, none of which is to run later.
insert into holdfast_ready (lane_id, turn, seq) select lane_id, turn, seq from holdfast_job where seq > :after;

-- name: insert_scheduled
insert into holdfast_scheduled (run_at, seq, retrying) values (?, ?, 0);

-- name: claimable_lanes
-- The lanes that a worker may claim from, each with the turn of its first job; empty ones are left out.
select lane_id, queue, task, head from (
    select lane_id, lane.queue as queue, task,
           (select turn from holdfast_ready where lane_id = lane.lane_id order by turn, seq limit 1) as head
    from holdfast_lane as lane
    join holdfast_queue using (queue)
    where paused = 0
      and task in (select value from json_each(:tasks))
      and (:queues is null or lane.queue in (select value from json_each(:queues)))
) where head is not null
order by head;

-- name: take_fence
update holdfast_meta set fence = fence + 1 where only_row = 1 returning fence;

-- name: front_of_lane
-- The first jobs of a lane up to a turn, as one JSON text: one step of SQLite, so the interpreter lock is let go once
-- for the batch and not once a row (with a busy event loop beside it, a row at a time was 20 times slower).
select json_group_array(json_array(
    job.id, job.seq, :queue, :task, job.payload,
    case when json_valid(job.headers) then json(job.headers) end,
    job.priority, job.max_attempts, job.timeout, job.enqueued_at,
    front.turn, front.attempt + 1, front.excused, front.interrupted, front.lost, :fence, job.order_key
))
from (
    select turn, seq, attempt, excused, interrupted, lost from holdfast_ready
    where lane_id = :lane_id and turn <= :last_turn order by turn, seq limit :limit
) as front
cross join holdfast_job as job on job.seq = front.seq;

-- name: damaged_front_of_lane
-- The same, row by row and texts as bytes, for when a row is damaged: one that cannot be read must not hide the others.
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
-- Rows up to (turn, seq) are exactly those that front_of_lane has read: the write lock is held in between.
insert into holdfast_running (
    seq, lane_id, fence, worker_id, lease_until, lease_span, started_at, attempt, excused, interrupted, lost, isolated,
    keyed
)
select seq, lane_id, :fence, :worker_id, :now + :span, :span, :now, attempt + 1, excused, interrupted, lost,
       lost > 0 and :isolates, keyed
from holdfast_ready
where lane_id = :lane_id and (turn, seq) <= (:turn, :seq);

-- name: leave_ready
delete from holdfast_ready where lane_id = :lane_id and (turn, seq) <= (:turn, :seq);

-- name: held
-- Which of the jobs [seq, …] are held, and under which fences: two arrays. (Pairs taken apart by ->> cost twice as much.)
select json_group_array(seq), json_group_array(fence)
from json_each(:seqs) cross join holdfast_running on seq = value;

-- name: complete_many
-- The head of a line is left out: it goes by itself, and its line is looked after.
insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at)
select seq, fence, worker_id, attempt, started_at, :now
from json_each(:seqs) cross join holdfast_running on seq = value and fence = :fence
where keyed = 0;

-- name: completed_among
select json_group_array(seq) from json_each(:seqs) cross join holdfast_completed on seq = value and fence = :fence;

-- name: complete_one
insert into holdfast_completed (seq, fence, worker_id, attempt, started_at, finished_at, result)
select seq, fence, worker_id, attempt, started_at, :now, :result
from holdfast_running where seq = :seq and fence = :fence;

-- name: count_completed
insert into holdfast_count (minute_at, lane_id, completed, run_time)
select :minute, lane_id, count(*), sum(:now - started_at)
from json_each(:seqs) cross join holdfast_running on seq = value and fence = :fence
where keyed <= :keyed
group by lane_id
on conflict (minute_at, lane_id) do update
set completed = completed + excluded.completed, run_time = run_time + excluded.run_time;

-- name: leave_running
delete from holdfast_running where seq in (select value from json_each(:seqs)) and fence = :fence and keyed = 0;

-- name: leave_running_alone
delete from holdfast_running where seq = :seq and fence = :fence returning keyed;

-- name: already_finished
-- Whether this very lease was ended so before, by its holder: the reply of an earlier try was lost.
select 1 from holdfast_completed where seq = :seq and fence = :fence and :outcome = 'completed'
union all
select 1 from holdfast_attempt where seq = :seq and fence = :fence and outcome = :outcome and by_holder
limit 1;

-- name: running_row
select seq, lane_id, fence, worker_id, lease_until, lease_span, started_at,
       running.attempt, excused, interrupted, lost, isolated, cancel_asked, cancel_reason,
       (select max_attempts from holdfast_job where seq = :seq),
       (select turn from holdfast_job where seq = :seq),
       (select priority from holdfast_job where seq = :seq),
       keyed
from holdfast_running as running
where seq = :seq and (:fence is null or fence = :fence);

-- name: drop_running
delete from holdfast_running where seq = :seq;

-- name: set_turn
update holdfast_job set turn = :turn where seq = :seq;

-- name: back_to_ready
insert into holdfast_ready (lane_id, turn, seq, attempt, excused, interrupted, lost, keyed)
values (:lane_id, :turn, :seq, :attempt, :excused, :interrupted, :lost, :keyed);

-- name: schedule_again
insert into holdfast_scheduled (run_at, seq, retrying, attempt, excused, interrupted, lost, keyed)
values (:run_at, :seq, :retrying, :attempt, :excused, :interrupted, :lost, :keyed);

-- name: fail
insert into holdfast_failed (seq, attempt, lost, finished_at, reason)
values (:seq, :attempt, :lost, :now, :reason);

-- name: cancel
insert into holdfast_cancelled (seq, attempt, lost, finished_at, reason)
values (:seq, :attempt, :lost, :now, :reason);

-- name: record_attempt
insert into holdfast_attempt (
    seq, attempt, fence, by_holder, worker_id, started_at, ended_at, outcome, error_class, message, traceback, signature
) values (
    :seq, :attempt, :fence, :by_holder, :worker_id, :started_at, :now, :outcome, :error_class, :message, :traceback,
    :signature
);

-- name: thin_attempts
-- Of very many attempts the first few and the last few are kept: a job that retries for weeks stays small.
delete from holdfast_attempt where seq = :seq and attempt > :first and attempt <= :attempt - :last;

-- name: count_one
insert into holdfast_count (minute_at, lane_id, enqueued, retried, failed, cancelled, lost)
values (:minute, :lane_id, :enqueued, :retried, :failed, :cancelled, :lost)
on conflict (minute_at, lane_id) do update
set enqueued = enqueued + excluded.enqueued, retried = retried + excluded.retried, failed = failed + excluded.failed,
    cancelled = cancelled + excluded.cancelled, lost = lost + excluded.lost;

-- name: due_jobs
select scheduled.run_at, scheduled.seq, job.lane_id, job.turn, attempt, excused, interrupted, lost, keyed
from (select * from holdfast_scheduled where run_at <= :now order by run_at, seq limit :limit) as scheduled
cross join holdfast_job as job on job.seq = scheduled.seq;

-- name: leave_scheduled
delete from holdfast_scheduled where run_at = ? and seq = ?;

-- name: due_to_ready
insert into holdfast_ready (lane_id, turn, seq, attempt, excused, interrupted, lost, keyed)
values (?, ?, ?, ?, ?, ?, ?, ?);

-- name: next_due
select run_at from holdfast_scheduled order by run_at, seq limit 1;

-- name: expired
select seq from holdfast_running
where lease_until <= :now
    and (:unbroken is null or (lease_span <= 2 * :unbroken and 4 * :waited <= lease_span))
order by lease_until limit :limit;

-- name: held_by_worker
select seq from holdfast_running where worker_id = :worker_id order by seq limit :limit;

-- name: held_by_each
select worker_id, count(*) from holdfast_running where worker_id in (select value from json_each(:worker_ids))
group by worker_id;

-- name: isolate_no_more
update holdfast_running set isolated = 0
where isolated = 1 and worker_id in (select value from json_each(:worker_ids));

-- name: describe_job
select job.id, lane.queue, lane.task from holdfast_job as job join holdfast_lane as lane using (lane_id)
where job.seq = :seq;

-- name: extend_many
update holdfast_running set lease_until = max(lease_until, :now + :span), lease_span = :span
where seq in (select value from json_each(:seqs));

-- name: extend_one
update holdfast_running set lease_until = max(lease_until, :now + :span)
where seq = :seq and fence = :fence;

-- name: asked_to_cancel
select seq, fence, (select id from holdfast_job where seq = running.seq)
from holdfast_running as running
where worker_id = :worker_id and cancel_asked = 1;

-- name: asked_to_cancel_among
select json_group_array(seq) from holdfast_running
where cancel_asked = 1 and seq in (select value from json_each(:seqs));

-- name: unheard
select job.id, seq, fence from holdfast_running as running join holdfast_job as job using (seq)
where worker_id = :worker_id and fence > :after order by seq;

-- name: set_progress
update holdfast_running set percent = coalesce(:percent, percent), note = coalesce(:note, note)
where seq = :seq and fence = :fence;

-- name: standing
select case
    when exists (select 1 from holdfast_running where seq = :seq and fence = :fence) then 'held'
    when exists (select 1 from holdfast_completed where seq = :seq and fence = :fence) then 'completed'
    else 'lost' end;

-- name: job_place
-- Where a job lies: at most one of these rows exists.
select job.seq, job.lane_id, job.turn, job.priority,
    case
        when exists (select 1 from holdfast_running where seq = job.seq) then 'running'
        when exists (select 1 from holdfast_completed where seq = job.seq) then 'completed'
        when exists (select 1 from holdfast_failed where seq = job.seq) then 'failed'
        when exists (select 1 from holdfast_cancelled where seq = job.seq) then 'cancelled'
        when exists (
            select 1 from holdfast_ready where lane_id = job.lane_id and turn = job.turn and seq = job.seq
        ) then 'ready'
        when job.order_key is not null and exists (select 1 from holdfast_blocked where seq = job.seq) then 'blocked'
        else 'scheduled'
    end,
    job.order_key
from holdfast_job as job where job.id = :id;

-- name: take_ready
delete from holdfast_ready where lane_id = :lane_id and turn = :turn and seq = :seq
returning attempt, excused, interrupted, lost;

-- name: take_scheduled
delete from holdfast_scheduled where run_at = :run_at and seq = :seq
returning attempt, excused, interrupted, lost;

-- name: take_failed
delete from holdfast_failed where seq = :seq returning attempt, lost;

-- name: take_cancelled
delete from holdfast_cancelled where seq = :seq returning attempt, lost;

-- name: ask_to_cancel
update holdfast_running set cancel_asked = 1, cancel_reason = :reason where seq = :seq;

-- name: job_result
select result from holdfast_completed where seq = (select seq from holdfast_job where id = :id);
