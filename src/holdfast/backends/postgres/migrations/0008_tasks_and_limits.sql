-- A task may be paused as a queue may. The row exists from the first pause or limit on; a task without one is open.
create table {schema}.task (
    task text primary key,
    paused boolean not null default false
);

-- The limits of a queue, or of a task in all queues: at most `max_running` leases at a time, and claims at a rate of
-- `rate_jobs` in `rate_span` microseconds, `rate_burst` of them at once. `rate_at` is the instant at which the rate has
-- no claims left to make up for. A queue or task without limits has nulls.
alter table {schema}.queue add column max_running integer;
alter table {schema}.queue add column rate_jobs integer;
alter table {schema}.queue add column rate_span bigint;
alter table {schema}.queue add column rate_burst integer;
alter table {schema}.queue add column rate_at bigint not null default 0;
alter table {schema}.task add column max_running integer;
alter table {schema}.task add column rate_jobs integer;
alter table {schema}.task add column rate_span bigint;
alter table {schema}.task add column rate_burst integer;
alter table {schema}.task add column rate_at bigint not null default 0;

-- The limit that the code declared last, as JSON: a worker that starts with the same declaration leaves the limit as an
-- operator has set it since.
alter table {schema}.queue add column declared text;
alter table {schema}.task add column declared text;
