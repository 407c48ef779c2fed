-- The tables of the demo. The effect table has no unique constraint on purpose: if a job took effect twice, it would
-- contain both rows.

-- name: create_run
create table if not exists holdfast_demo_run (
    queue text not null,
    plan text not null,
    produced integer not null,
    killed integer not null,
    seconds double precision not null,
    finished integer not null
);

-- name: create_job
create table if not exists holdfast_demo_job (
    job_id text not null,
    job_number integer not null
);

-- name: create_effect
create table if not exists holdfast_demo_effect (
    job_id text not null,
    attempt integer not null,
    used_attempts integer not null,
    fence bigint not null,
    worker text not null
);

-- name: create_ledger
create table if not exists holdfast_demo_ledger (
    job_id text not null,
    job_state text not null,
    attempt integer not null
);

-- name: index_job
create index if not exists holdfast_demo_job_by_id on holdfast_demo_job (job_id);

-- name: index_effect
create index if not exists holdfast_demo_effect_by_id on holdfast_demo_effect (job_id);

-- name: index_ledger
create index if not exists holdfast_demo_ledger_by_id on holdfast_demo_ledger (job_id);

-- name: drop_run
drop table if exists holdfast_demo_run;

-- name: drop_job
drop table if exists holdfast_demo_job;

-- name: drop_effect
drop table if exists holdfast_demo_effect;

-- name: drop_ledger
drop table if exists holdfast_demo_ledger;

-- name: read_run
select queue, plan, produced, killed, seconds, finished from holdfast_demo_run;

-- name: begin_run
insert into holdfast_demo_run (queue, plan, produced, killed, seconds, finished) values (?, ?, 0, 0, 0, 0);

-- name: note_produced
update holdfast_demo_run set produced = ?;

-- name: note_session
update holdfast_demo_run set killed = killed + ?, seconds = seconds + ?, finished = ?;

-- name: add_job
insert into holdfast_demo_job (job_id, job_number) values (?, ?);

-- name: add_effect
insert into holdfast_demo_effect (job_id, attempt, used_attempts, fence, worker) values (?, ?, ?, ?, ?);

-- name: clear_ledger
delete from holdfast_demo_ledger;

-- name: add_ledger
insert into holdfast_demo_ledger (job_id, job_state, attempt) values (?, ?, ?);

-- name: count_jobs
select count(*) from holdfast_demo_job;

-- name: count_effects
select count(*) from holdfast_demo_effect;

-- name: count_states
select job_state, count(*) from holdfast_demo_ledger group by job_state;

-- name: histogram
-- Jobs that took effect, each counted once, by their used attempts.
select used_attempts, count(*)
from (select max(used_attempts) as used_attempts from holdfast_demo_effect group by job_id) as jobs
group by used_attempts order by used_attempts;

-- name: highest
select max(attempt) from holdfast_demo_ledger;

-- name: lost_attempts
-- Attempts that did not count because a consumer was killed: in total, and the maximum of one job; ? is max_attempts,
-- which a failed job has used.
select coalesce(sum(beyond), 0), coalesce(max(beyond), 0) from (
    select attempt - used_attempts as beyond from holdfast_demo_effect
    union all
    select attempt - ? from holdfast_demo_ledger where job_state = 'failed'
) as jobs;

-- name: doubled
select job_id, count(*) over () from holdfast_demo_effect group by job_id having count(*) > 1
order by job_id limit 5;

-- name: lost
-- Jobs that were produced, have no effect, and are neither waiting nor failed nor cancelled: they will never run.
select job.job_id, count(*) over () from holdfast_demo_job as job
where not exists (select 1 from holdfast_demo_effect as effect where effect.job_id = job.job_id)
  and not exists (
      select 1 from holdfast_demo_ledger as ledger
      where ledger.job_id = job.job_id and ledger.job_state <> 'completed'
  )
order by job.job_id limit 5;

-- name: strays
-- Effects that the ledger does not confirm: the job was never produced, is not completed, or was completed by another
-- attempt.
select effect.job_id, count(*) over () from holdfast_demo_effect as effect
where not exists (select 1 from holdfast_demo_job as job where job.job_id = effect.job_id)
   or not exists (
      select 1 from holdfast_demo_ledger as ledger
      where ledger.job_id = effect.job_id and ledger.job_state = 'completed' and ledger.attempt = effect.attempt
   )
order by effect.job_id limit 5;

-- name: list_sqlite_tables
select name from sqlite_schema where type in ('table', 'view') and substr(name, 1, 7) <> 'sqlite_';

-- name: list_postgres_tables
select relname from pg_catalog.pg_class
where relnamespace = '"{schema}"'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'f');

-- name: list_mysql_tables
select table_name from information_schema.tables where table_schema = database();

-- name: drop_schema
drop schema "{schema}" cascade;
