-- Schedules: what runs again and again. `definition` is JSON; `next_at` and `last_at` are nominal times. `owner` is the
-- app whose code declares the schedule, null if it was defined at run time; `declared_at` is when a worker last confirmed
-- that. `decided_at` is when `next_at` was decided: if it is in the future, the clock was set back.
create table {schema}.schedule (
    name text primary key,
    definition text not null,
    task text not null,
    owner text,
    declared_at bigint not null,
    paused boolean not null,
    next_at bigint not null,
    last_at bigint,
    decided_at bigint not null
);
