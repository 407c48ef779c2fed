-- What is said differently on PostgreSQL.

-- name: create_effect
create table {at}torture_effect (
    effect_number bigint primary key generated always as identity,
    job_id text not null,
    attempt integer not null,
    fence bigint not null,
    worker_id text not null
);

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

-- name: drop_schema
drop schema if exists "{schema}" cascade;

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
