-- What is said differently on SQLite.

-- name: create_effect
create table {at}torture_effect (
    effect_number integer primary key autoincrement,
    job_id text not null,
    attempt integer not null,
    fence integer not null,
    worker_id text not null
);

-- name: create_step
create table {at}torture_step (
    step_number integer primary key autoincrement,
    job_id text not null,
    attempt integer not null,
    fence integer not null,
    worker_id text not null
);

-- name: create_stream_effect
create table {at}torture_stream_effect (
    effect_number integer primary key autoincrement,
    consumer text not null,
    category text not null,
    partition_id integer not null,
    position_id integer not null,
    event_id text not null,
    generation integer not null,
    node_id text not null
);

-- name: mark_as_made
create table {at}torture_made (by_a_run integer);

-- name: tables
select name from sqlite_schema where type = 'table' and name not like 'sqlite_%';

-- name: count_strangers
-- An index goes with its table, and has no row of its own in it.
select count(*) from sqlite_schema
where type <> 'index' and name not like 'sqlite_%' and not (type = 'table' and name in ({known}));

-- name: clear_workers
delete from {at}worker where exists (select 1 from json_each(beat, '$.queues') where value in ({ours}));

-- name: clear_nodes
delete from {at}node
where exists (select 1 from json_each(members) where json_extract(value, '$.consumer') in ({consumers}));

-- name: wrong_order
select job_id from (
    select effect.job_id, job.seq, lag(job.seq) over (partition by job.order_key order by effect.effect_number) as earlier
    from holdfast_torture_effect as effect join holdfast_job as job on job.id = effect.job_id
    where job.order_key is not null
) as placed
where earlier > seq
limit 20;
