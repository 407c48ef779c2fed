-- What is different on MySQL and MariaDB. {at}torture_made is the marker: it lists the tables that a run has created.

-- name: create_database
create database `{database}` character set utf8mb4;

-- name: create_marker
create table {at}torture_made (name varchar(190) not null);

-- name: list
insert into {at}torture_made select table_name from information_schema.tables where table_schema = '{database}';

-- name: exists
select count(*) from information_schema.schemata where schema_name = '{database}';

-- name: has_marker
select count(*) from information_schema.tables
where table_schema = '{database}' and table_name = 'holdfast_torture_made';

-- name: count_unlisted
-- Views are among the tables.
select (
    select count(*) from information_schema.tables
    where table_schema = '{database}' and table_name <> 'holdfast_torture_made'
      and not exists (select 1 from {at}torture_made as made where made.name = convert(table_name using utf8mb4))
) + (select count(*) from information_schema.routines where routine_schema = '{database}')
  + (select count(*) from information_schema.triggers where trigger_schema = '{database}')
  + (select count(*) from information_schema.events where event_schema = '{database}');

-- name: drop_database
drop database `{database}`;

-- name: clock
select cast(unix_timestamp(sysdate(6)) * 1000000 as signed);

-- name: frozen
start transaction with consistent snapshot;

-- name: tables
select concat('`', table_schema, '`.`', table_name, '`') from information_schema.tables
where table_schema = '{database}';

-- name: check_tables
check table {names};

-- name: outlast
-- The session that excludes other runs is idle for as long as a run lasts: the server must not end it.
set session wait_timeout = 604800;

-- name: reserve
select get_lock(sha2('holdfast torture {database}', 224), 0);

-- name: still_there
select 1;

-- name: sessions
-- Those of the conductor are in no database.
select id from information_schema.processlist where db = '{database}' order by id;

-- name: outdate
-- The list of transactions is a copy, which the server makes again only if it was not read for 0.1 seconds.
select sleep(0.15);

-- name: count_open
-- A session that is idle has no statement.
select count(*) from information_schema.processlist as session
join information_schema.innodb_trx as work on work.trx_mysql_thread_id = session.id
where session.db = '{database}' and session.command = 'Sleep';

-- name: terminate
kill {session};

-- name: show
select @@{setting};
