-- What is different on PostgreSQL. {at}torture_made is the marker: it lists what a run has created in its schema.

-- name: copy_effect
copy {at}torture_effect (job_id, attempt, fence, worker_id) from stdin;

-- name: copy_stream_effect
copy {at}torture_stream_effect (consumer, category, partition_id, position_id, event_id, generation, node_id) from stdin;

-- name: send_much
select length($1::text);

-- name: create_schema
create schema "{schema}";

-- name: create_marker
create table {at}torture_made (created_oid oid not null, name text not null, kind "char" not null);

-- name: list
-- Tables, and the sequences that belong to no column.
insert into {at}torture_made
select class.oid, class.relname, class.relkind from pg_class as class
where class.relnamespace = cast('"{schema}"' as regnamespace) and class.relkind in ('r', 'S')
  and not exists (
    select 1 from pg_depend as owned
    where owned.classid = cast('pg_class' as regclass) and owned.objid = class.oid and owned.deptype in ('a', 'i')
  );

-- name: exists
select count(*) from pg_namespace where nspname = '{schema}';

-- name: has_marker
select count(*) from pg_tables where schemaname = '{schema}' and tablename = 'torture_made';

-- name: count_unlisted
-- Everything that is in a schema depends on it: tables, views, sequences, types, functions, extensions and the rest.
-- What comes with a table (its indexes, its row type, the array of that) depends on the table instead; the sequence of a
-- column and a partition depend on both, and are not counted besides their table.
select count(*) from pg_depend as member
join pg_namespace as space on space.oid = member.refobjid
where member.refclassid = cast('pg_namespace' as regclass) and member.deptype = 'n' and space.nspname = '{schema}'
  and not (
    member.classid = cast('pg_class' as regclass)
    and (
        member.objid in (select created_oid from {at}torture_made)
        or member.objid = cast('{at}torture_made' as regclass)
        or exists (
            select 1 from pg_depend as owned join pg_class as class on class.oid = owned.refobjid
            where owned.classid = member.classid and owned.objid = member.objid
              and owned.refclassid = member.classid and owned.refobjid <> owned.objid
              and class.relnamespace = space.oid and owned.deptype in ('a', 'i')
        )
    )
  );

-- name: listed_now
-- The marker goes with the rest.
select class.relkind, format('{at}%I', class.relname) from pg_class as class
where class.oid in (select created_oid from {at}torture_made) or class.oid = cast('{at}torture_made' as regclass);

-- name: drop_listed
-- All at once and without cascade: they may depend on one another, and nothing else that depends on them is dropped.
drop {what} {names};

-- name: drop_schema
-- Without cascade: what the marker does not list is not dropped.
drop schema "{schema}";

-- name: clock
select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint);

-- name: frozen
set transaction isolation level repeatable read;

-- name: make_amcheck
create extension if not exists amcheck;

-- name: check_indexes
select bt_index_check(index.oid, true)
from pg_class as index
join pg_namespace as space on space.oid = index.relnamespace
join pg_am as method on method.oid = index.relam
join pg_index as made on made.indexrelid = index.oid
where space.nspname = '{schema}' and index.relkind = 'i' and method.amname = 'btree' and made.indisvalid;

-- name: outlast
-- The session that excludes other runs is idle for as long as a run lasts: no timeout of the server may end it.
select set_config(name, '0', true) from pg_settings
where name in ('idle_in_transaction_session_timeout', 'transaction_timeout');

-- name: reserve
-- Held until the transaction ends, so it works through a transaction pooler, too.
select cast(pg_try_advisory_xact_lock(hashtextextended('holdfast torture {schema}', 0)) as integer);

-- name: still_there
select 1;

-- name: sessions
select pid from pg_stat_activity
where datname = current_database() and application_name = '{sessions}' order by pid;

-- name: count_open
select count(*) from pg_stat_activity
where datname = current_database() and application_name = '{sessions}' and state like 'idle in transaction%';

-- name: terminate
select cast(pg_terminate_backend({session}) as integer);

-- name: show
show {setting};
