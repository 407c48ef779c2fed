-- The tables of Holdfast on SQLite.
--
-- The body of a job is written once, into holdfast_job. The state of the job is a small row in exactly one of the
-- tables ready, scheduled, blocked, running, completed, failed, cancelled: the row moves, the body stays. So `ready`
-- contains only jobs that may be claimed now, and the cost of a claim does not grow with the length of the queue.
--
-- Instants are microseconds since 1970 (UTC); durations are microseconds.

-- One row. `fence` only grows: every claim takes the next one. `seq` numbers jobs in the order of their enqueue.
create table holdfast_meta (
    only_row integer primary key check (only_row = 1),
    schema_version integer not null,
    fence integer not null,
    seq integer not null
) strict;

insert into holdfast_meta (only_row, schema_version, fence, seq) values (1, 1, 0, 0);

create table holdfast_queue (
    queue text primary key,
    paused integer not null default 0
) strict, without rowid;

-- A lane is the ordered jobs of one task within one queue. Claims go lane by lane, so that jobs of a paused queue, or of
-- a task that a worker does not know, never stand in front of others.
create table holdfast_lane (
    lane_id integer primary key,
    queue text not null,
    task text not null,
    unique (queue, task)
) strict;

-- Never updated except for `turn`, and that only when a job is to run again later. (lane_id, turn, seq) finds the row in
-- ready without a second index there.
create table holdfast_job (
    seq integer primary key,
    id text not null unique,
    lane_id integer not null,
    payload text not null,
    headers text,
    priority integer not null,
    max_attempts integer not null,
    timeout real,
    enqueued_at integer not null,
    turn integer not null,
    order_key text
) strict;

-- `keyed`, here and below: the job has an order_key and is its head. The verb that ends such a job must find the next
-- head; for all other jobs this column alone shows that there is nothing to do.
create table holdfast_ready (
    lane_id integer not null,
    turn integer not null,
    seq integer not null,
    attempt integer not null default 0,
    excused integer not null default 0,
    interrupted integer not null default 0,
    lost integer not null default 0,
    keyed integer not null default 0,
    primary key (lane_id, turn, seq)
) strict, without rowid;

-- `retrying` distinguishes a job that will run again from one that its caller delayed.
create table holdfast_scheduled (
    run_at integer not null,
    seq integer not null,
    retrying integer not null,
    attempt integer not null default 0,
    excused integer not null default 0,
    interrupted integer not null default 0,
    lost integer not null default 0,
    keyed integer not null default 0,
    primary key (run_at, seq)
) strict, without rowid;

-- An order_key within a queue; the row exists as long as a job of the key has not ended. `head_seq` is the one job of the
-- key that is not in blocked; null only within a transaction.
create table holdfast_key_line (
    line_id integer primary key,
    queue text not null,
    order_key text not null,
    head_seq integer,
    unique (queue, order_key)
) strict;

-- Jobs that wait behind a head, in the order of `place`: the seq or, for a job that an operator retried, a new number
-- from the same counter, so that the job goes to the end.
create table holdfast_blocked (
    line_id integer not null,
    place integer not null,
    seq integer not null unique,
    attempt integer not null default 0,
    excused integer not null default 0,
    interrupted integer not null default 0,
    lost integer not null default 0,
    primary key (line_id, place)
) strict, without rowid;

-- No index on lease_until: this table has at most one row per slot of all workers, and an index would be written three
-- times per job.
create table holdfast_running (
    seq integer primary key,
    lane_id integer not null,
    fence integer not null,
    worker_id text not null,
    lease_until integer not null,
    lease_span integer not null,
    started_at integer not null,
    attempt integer not null,
    excused integer not null,
    interrupted integer not null,
    lost integer not null,
    isolated integer not null,
    cancel_asked integer not null default 0,
    cancel_reason text,
    percent real,
    note text,
    keyed integer not null default 0
) strict;

create index holdfast_running_cancel on holdfast_running (worker_id) where cancel_asked = 1;

-- The ledger: appended to, pruned by age, never updated. By `fence` a repeated finish is recognised.
create table holdfast_completed (
    seq integer primary key,
    fence integer not null,
    worker_id text not null,
    attempt integer not null,
    started_at integer not null,
    finished_at integer not null,
    result text
) strict;

create table holdfast_failed (
    seq integer primary key,
    attempt integer not null,
    lost integer not null,
    finished_at integer not null,
    reason text not null
) strict;

create table holdfast_cancelled (
    seq integer primary key,
    attempt integer not null,
    lost integer not null,
    finished_at integer not null,
    reason text not null
) strict;

-- Every attempt that ended without completing its job. `by_holder`: the holder of the lease ended it. So a repeat of its
-- call, after the first reply was lost, can be distinguished from a call under a lease that was taken away.
create table holdfast_attempt (
    seq integer not null,
    attempt integer not null,
    fence integer not null,
    by_holder integer not null,
    worker_id text not null,
    started_at integer not null,
    ended_at integer not null,
    outcome text not null,
    error_class text,
    message text,
    traceback text,
    signature text,
    primary key (seq, attempt)
) strict, without rowid;

create table holdfast_count (
    minute_at integer not null,
    lane_id integer not null,
    enqueued integer not null default 0,
    completed integer not null default 0,
    retried integer not null default 0,
    failed integer not null default 0,
    cancelled integer not null default 0,
    lost integer not null default 0,
    run_time integer not null default 0,
    primary key (minute_at, lane_id)
) strict, without rowid;

create table holdfast_worker (
    worker_id text primary key,
    beat text not null,
    started_at integer not null,
    beat_at integer not null
) strict, without rowid;
