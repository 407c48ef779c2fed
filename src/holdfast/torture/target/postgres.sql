-- What is said differently on PostgreSQL.

-- name: create_effect
create table {at}torture_effect (
    effect_number bigint primary key generated always as identity,
    job_id text not null,
    attempt integer not null,
    fence bigint not null,
    worker_id text not null
);

-- name: copy_effect
copy {at}torture_effect (job_id, attempt, fence, worker_id) from stdin;

-- name: create_stream_effect
create table {at}torture_stream_effect (
    effect_number bigint primary key generated always as identity,
    consumer text not null,
    category text not null,
    partition_id integer not null,
    position_id bigint not null,
    event_id text not null,
    generation bigint not null,
    node_id text not null
);

-- name: create_step
create table {at}torture_step (
    step_number bigint primary key generated always as identity,
    job_id text not null,
    attempt integer not null,
    fence bigint not null,
    worker_id text not null
);

-- name: make_amcheck
create extension if not exists amcheck;

-- name: check_indexes
select bt_index_check(index.oid, true)
from pg_class as index
join pg_namespace as space on space.oid = index.relnamespace
join pg_am as method on method.oid = index.relam
join pg_index as made on made.indexrelid = index.oid
where space.nspname = '{schema}' and index.relkind = 'i' and method.amname = 'btree' and made.indisvalid;

-- name: clock
select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint);

-- name: tables
select tablename from pg_tables where schemaname = '{schema}';

-- name: has_schema
select count(*) from pg_namespace where nspname = '{schema}';

-- name: has_meta
-- A table of this name alone could be anybody's.
select count(*) from pg_attribute as attribute
join pg_class as class on class.oid = attribute.attrelid
join pg_namespace as space on space.oid = class.relnamespace
where space.nspname = '{schema}' and class.relname = 'meta' and class.relkind = 'r'
  and attribute.attname in ('only_row', 'schema_version');

-- name: count_strangers
-- Everything that lies in a schema depends on it: tables, views, sequences, types, functions, extensions and the rest.
-- What comes with a table (its indexes, its row type, the array of that) depends on the table instead; the sequence of a
-- column and a partition depend on both, and are not counted besides their table.
with here as (
    select class.oid, class.relname, class.relkind from pg_class as class
    join pg_namespace as space on space.oid = class.relnamespace where space.nspname = '{schema}'
)
select count(*) from pg_depend as lies
join pg_namespace as space on space.oid = lies.refobjid
where lies.refclassid = cast('pg_namespace' as regclass) and lies.deptype = 'n' and space.nspname = '{schema}'
  and not (
    lies.classid = cast('pg_class' as regclass)
    and (
        lies.objid in (select oid from here where relkind in ('r', 'S') and relname in ({known}))
        or exists (
            select 1 from pg_depend as owned
            where owned.classid = lies.classid and owned.objid = lies.objid and owned.refclassid = lies.classid
              and owned.refobjid in (select oid from here) and owned.refobjid <> owned.objid
              and owned.deptype in ('a', 'i')
        )
    )
  );

-- name: drop_tables
-- All at once and without cascade: they may stand on one another, and nothing that stands on them elsewhere is dropped.
drop table {tables};

-- name: drop_sequences
drop sequence if exists {at}fence, {at}job_seq;

-- name: drop_schema
drop schema "{schema}";

-- name: mark_as_made
create table {at}torture_made (by_a_run boolean);

-- name: clear_workers
delete from {at}worker where cast(beat as jsonb) -> 'queues' ?| array[{ours}];

-- name: clear_nodes
delete from {at}node
where exists (
    select 1 from jsonb_array_elements(cast(members as jsonb)) as member where member ->> 'consumer' in ({consumers})
);

-- name: outlast
-- The session that keeps other runs away does nothing for as long as a run lasts: no limit of the server may end it.
select set_config(name, '0', true) from pg_settings
where name in ('idle_in_transaction_session_timeout', 'transaction_timeout');

-- name: reserve
-- Held until the transaction ends, so it works through a transaction pooler, too.
select cast(pg_try_advisory_xact_lock(hashtextextended('holdfast torture {schema}', 0)) as integer);

-- name: still_there
select 1;

-- name: sessions
select pid from pg_stat_activity where datname = current_database() and application_name = '{sessions}' order by pid;

-- name: count_sessions
select count(*) from pg_stat_activity where datname = current_database() and application_name = '{sessions}';

-- name: count_open
select count(*) from pg_stat_activity
where datname = current_database() and application_name = '{sessions}' and state like 'idle in transaction%';

-- name: terminate
select pg_terminate_backend({pid});

-- name: frozen
set transaction isolation level repeatable read;

-- name: show
show {setting};

-- name: wrong_order
select job_id from (
    select effect.job_id, job.seq, lag(job.seq) over (partition by job.order_key order by effect.effect_number) as earlier
    from {at}torture_effect as effect join {at}job as job on job.id = cast(effect.job_id as uuid)
    where job.order_key is not null
) as placed
where earlier > seq
limit 20;
