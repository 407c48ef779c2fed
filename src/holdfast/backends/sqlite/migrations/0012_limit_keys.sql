-- Limits per key: docs/decisions/0023-limits.md.
--
-- A job with a limit_key is admitted, ready or running, or it waits in blocked under its key, which is negative; there
-- `place` is its turn. Order keys are positive, and 0 are jobs that wait for parents.
alter table holdfast_job add column limit_key text;

-- What a task allows for each key of its jobs; as the limits of the task itself.
alter table holdfast_task add column key_max_running integer;
alter table holdfast_task add column key_rate_jobs integer;
alter table holdfast_task add column key_rate_span integer;
alter table holdfast_task add column key_rate_burst integer;
alter table holdfast_task add column key_declared text;

-- A limit_key within a lane; the row exists while a job of the key is admitted or waits for that, and while its rate has
-- claims to make up for. `rate_at` as for a task. `wake_at`: when the key is to be looked at without an event, because
-- its rate then allows a start.
create table holdfast_limit_key (
    key_id integer primary key,
    lane_id integer not null,
    limit_key text not null,
    rate_at integer not null default 0,
    wake_at integer,
    unique (lane_id, limit_key)
) strict;

create index holdfast_limit_key_wake on holdfast_limit_key (wake_at) where wake_at is not null;

-- The admitted jobs of a key. A row counts only while its job is in ready or running: a slot is a lease, or a place from
-- which one is claimed. `attempt` is that before the admission: a later one is the start that the rate counts.
-- `admitted_at` is null once the start is counted in `rate_at`, or need not be.
create table holdfast_limit_slot (
    key_id integer not null,
    seq integer not null,
    attempt integer not null,
    admitted_at integer,
    primary key (key_id, seq)
) strict, without rowid;

-- Two jobs of a limit key may have the same turn, so `seq` becomes a part of the key.
create table holdfast_blocked_again (
    key_id integer not null,
    place integer not null,
    seq integer not null unique,
    attempt integer not null default 0,
    excused integer not null default 0,
    interrupted integer not null default 0,
    lost integer not null default 0,
    followed integer not null default 0,
    primary key (key_id, place, seq)
) strict, without rowid;

insert into holdfast_blocked_again (key_id, place, seq, attempt, excused, interrupted, lost, followed)
select key_id, place, seq, attempt, excused, interrupted, lost, followed from holdfast_blocked;

drop table holdfast_blocked;
alter table holdfast_blocked_again rename to holdfast_blocked;
