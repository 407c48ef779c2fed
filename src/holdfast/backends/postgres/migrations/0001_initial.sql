-- The tables of Holdfast on PostgreSQL.
--
-- The body of a job is written once, into job. Where the job stands is a small row in exactly one of the tables ready,
-- scheduled, running, completed, failed, cancelled; the row moves, the body stays. So `ready` holds only what may be
-- claimed now, and no step writes a payload again. The figures behind this are in docs/decisions/0010-postgres-layout.md.
--
-- Instants are microseconds since 1970 (UTC); durations are microseconds.

create table {schema}.meta (
    only_row boolean primary key default true check (only_row),
    schema_version integer not null
);

insert into {schema}.meta (schema_version) values (1);

-- One fence per claim statement. No cache: a session that kept some back would hand out old ones late.
create sequence {schema}.fence as bigint cache 1;

create sequence {schema}.job_seq as bigint cache 1;

create table {schema}.queue (
    queue text primary key,
    paused boolean not null default false
);

-- A lane is the line of one task within one queue. Claims go lane by lane, so that jobs of a paused queue, or of a task
-- that a worker does not know, never lie in front of others.
create table {schema}.lane (
    lane_id integer primary key generated always as identity,
    queue text not null,
    task text not null,
    unique (queue, task)
);

-- Never rewritten but for `turn`, and that only when a job is to run again later. (lane_id, turn, seq) finds the row in
-- ready without a second index there. The unique id is what a repeated enqueue runs into, whatever became of the job.
create table {schema}.job (
    seq bigint primary key default nextval('{schema}.job_seq'),
    id uuid not null unique,
    lane_id integer not null,
    payload text not null,
    headers text,
    priority integer not null,
    max_attempts integer not null,
    timeout double precision,
    enqueued_at bigint not null,
    turn bigint not null,
    payload_bytes integer not null
);

create table {schema}.ready (
    lane_id integer not null,
    turn bigint not null,
    seq bigint not null,
    payload_bytes integer not null,
    attempt integer not null default 0,
    excused integer not null default 0,
    interrupted integer not null default 0,
    lost integer not null default 0,
    primary key (lane_id, turn, seq)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2, vacuum_truncate = false
);

-- `retrying` tells a job that will run again from one that its caller delayed.
create table {schema}.scheduled (
    run_at bigint not null,
    seq bigint not null,
    retrying boolean not null,
    attempt integer not null default 0,
    excused integer not null default 0,
    interrupted integer not null default 0,
    lost integer not null default 0,
    primary key (run_at, seq)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);

-- A row keeps its fence for life: it is inserted by a claim, and what is updated here is never the fence.
-- No index on lease_until: this table is as long as the fleet has slots, an index would be written with every job, and
-- without it an extension is a heap-only update, for which fillfactor leaves room.
create table {schema}.running (
    seq bigint primary key,
    lane_id integer not null,
    fence bigint not null,
    worker_id text not null,
    lease_until bigint not null,
    lease_span bigint not null,
    started_at bigint not null,
    attempt integer not null,
    excused integer not null,
    interrupted integer not null,
    lost integer not null,
    isolated boolean not null,
    cancel_asked boolean not null default false,
    cancel_reason text,
    percent double precision,
    note text
) with (
    fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

create index holdfast_running_cancel on {schema}.running (worker_id) where cancel_asked;

-- The ledger: appended to, pruned by age, never updated. `fence` lets a repeated finish recognise itself.
create table {schema}.completed (
    seq bigint primary key,
    fence bigint not null,
    worker_id text not null,
    attempt integer not null,
    started_at bigint not null,
    finished_at bigint not null,
    result text
);

create table {schema}.failed (
    seq bigint primary key,
    attempt integer not null,
    lost integer not null,
    finished_at bigint not null,
    reason text not null
);

create table {schema}.cancelled (
    seq bigint primary key,
    attempt integer not null,
    lost integer not null,
    finished_at bigint not null,
    reason text not null
);

-- Every attempt that ended without completing its job. `by_holder`: the holder itself ended it, so that a repeat of its
-- call, whose first reply was lost, can be told from the call of one whose lease was taken away.
create table {schema}.attempt (
    seq bigint not null,
    attempt integer not null,
    fence bigint not null,
    by_holder boolean not null,
    worker_id text not null,
    started_at bigint not null,
    ended_at bigint not null,
    outcome text not null,
    error_class text,
    message text,
    traceback text,
    signature text,
    primary key (seq, attempt)
);

-- Counts per minute. Writers append to `tally`, a row per batch and lane, so that none waits for another; pruning folds
-- the minutes that are over into `minute_count`.
create table {schema}.tally (
    minute_at bigint not null,
    lane_id integer not null,
    enqueued integer not null default 0,
    completed integer not null default 0,
    retried integer not null default 0,
    failed integer not null default 0,
    cancelled integer not null default 0,
    lost integer not null default 0,
    run_time bigint not null default 0
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, vacuum_truncate = false);

create table {schema}.minute_count (
    minute_at bigint not null,
    lane_id integer not null,
    enqueued bigint not null,
    completed bigint not null,
    retried bigint not null,
    failed bigint not null,
    cancelled bigint not null,
    lost bigint not null,
    run_time bigint not null,
    primary key (minute_at, lane_id)
);

create table {schema}.worker (
    worker_id text primary key,
    beat text not null,
    started_at bigint not null,
    beat_at bigint not null
) with (fillfactor = 50);
