-- What is different on SQLite. {at}torture_made is the marker: it lists what a run has created in its file.

-- name: create_marker
create table {at}torture_made (name text not null);

-- name: list
insert into {at}torture_made select name from sqlite_schema;

-- name: has_marker
select count(*) from sqlite_schema where type = 'table' and name = '{at}torture_made';

-- name: count_unlisted
-- An index without a text comes with its table, and SQLite creates tables itself.
select count(*) from sqlite_schema
where name not like 'sqlite!_%' escape '!' and name <> '{at}torture_made'
  and name not in (select name from {at}torture_made);
