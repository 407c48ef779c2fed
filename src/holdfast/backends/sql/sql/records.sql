-- Records: by kind and name, which is the primary key. A change names the version that it replaces.

-- name: find_record
select name, version, content, touched_at, {now} - touched_at as age from {schema}.record
where kind = :kind and name = :name;

-- name: records_after
select name, version, content, touched_at, {now} - touched_at as age from {schema}.record
where kind = :kind and name > :after order by name limit :limit;

-- name: records_before
select name, version, content, touched_at, {now} - touched_at as age from {schema}.record
where kind = :kind and name < :before order by name desc limit :limit;

-- name: first_records
select name, version, {now} - touched_at as age,
       (select count(*) from {schema}.record as counted where counted.kind = :kind) as number
from {schema}.record where kind = :kind order by name limit :limit;

-- name: add_record
insert into {schema}.record (kind, name, version, content, touched_at)
values (:kind, :name, 1, :content, {now})
on conflict do nothing;

-- name: write_record
update {schema}.record set version = version + 1, content = :content, touched_at = {now}
where kind = :kind and name = :name and version = :version;

-- name: delete_record
delete from {schema}.record where kind = :kind and name = :name and version = :version;
