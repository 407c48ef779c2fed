-- The demo's own tables. The table of effects has no unique constraint on purpose: if a work took effect twice, both
-- rows would stand here.

-- name: create_run
create table if not exists holdfast_demo_run (
    queue text not null,
    plan text not null,
    produced integer not null,
    killed integer not null,
    seconds double precision not null,
    finished integer not null
);

-- name: create_work
create table if not exists holdfast_demo_work (
    work_id text not null,
    work_number integer not null
);

-- name: create_effect
create table if not exists holdfast_demo_effect (
    work_id text not null,
    attempt integer not null,
    tries integer not null,
    fence bigint not null,
    worker text not null
);

-- name: create_ledger
create table if not exists holdfast_demo_ledger (
    work_id text not null,
    job_state text not null,
    attempt integer not null
);

-- name: index_work
create index if not exists holdfast_demo_work_by_id on holdfast_demo_work (work_id);

-- name: index_effect
create index if not exists holdfast_demo_effect_by_id on holdfast_demo_effect (work_id);

-- name: index_ledger
create index if not exists holdfast_demo_ledger_by_id on holdfast_demo_ledger (work_id);

-- name: drop_run
drop table if exists holdfast_demo_run;

-- name: drop_work
drop table if exists holdfast_demo_work;

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

-- name: add_work
insert into holdfast_demo_work (work_id, work_number) values (?, ?);

-- name: add_effect
insert into holdfast_demo_effect (work_id, attempt, tries, fence, worker) values (?, ?, ?, ?, ?);

-- name: clear_ledger
delete from holdfast_demo_ledger;

-- name: add_ledger
insert into holdfast_demo_ledger (work_id, job_state, attempt) values (?, ?, ?);

-- name: count_works
select count(*) from holdfast_demo_work;

-- name: count_effects
select count(*) from holdfast_demo_effect;

-- name: count_states
select job_state, count(*) from holdfast_demo_ledger group by job_state;

-- name: histogram
-- Works that took effect, each counted once, by the tries that it took.
select tries, count(*) from (select max(tries) as tries from holdfast_demo_effect group by work_id) as works
group by tries order by tries;

-- name: highest
select max(attempt) from holdfast_demo_ledger;

-- name: lost_attempts
-- Attempts beyond the tries, in all and of one work at most; ? is the number of tries after which a work is given up.
select coalesce(sum(beyond), 0), coalesce(max(beyond), 0) from (
    select attempt - tries as beyond from holdfast_demo_effect
    union all
    select attempt - ? from holdfast_demo_ledger where job_state = 'failed'
) as works;

-- name: doubled
select work_id, count(*) over () from holdfast_demo_effect group by work_id having count(*) > 1
order by work_id limit 5;

-- name: lost
-- Produced, without effect, and neither waiting nor given up: nobody will ever do it.
select work.work_id, count(*) over () from holdfast_demo_work as work
where not exists (select 1 from holdfast_demo_effect as effect where effect.work_id = work.work_id)
  and not exists (
      select 1 from holdfast_demo_ledger as ledger
      where ledger.work_id = work.work_id and ledger.job_state <> 'completed'
  )
order by work.work_id limit 5;

-- name: strays
-- Effects that the ledger does not confirm: of a work that was never produced, is not completed, or was completed by
-- another attempt.
select effect.work_id, count(*) over () from holdfast_demo_effect as effect
where not exists (select 1 from holdfast_demo_work as work where work.work_id = effect.work_id)
   or not exists (
      select 1 from holdfast_demo_ledger as ledger
      where ledger.work_id = effect.work_id and ledger.job_state = 'completed' and ledger.attempt = effect.attempt
   )
order by effect.work_id limit 5;

-- name: list_sqlite_tables
select name from sqlite_schema where type in ('table', 'view') and substr(name, 1, 7) <> 'sqlite_';

-- name: list_postgres_tables
select relname from pg_catalog.pg_class
where relnamespace = '"{schema}"'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'f');

-- name: drop_schema
drop schema "{schema}" cascade;
