-- Pruning, queues, and the version of the schema.

-- name: prune_counts
delete from holdfast_count where minute_at < :now - :keep;

-- name: has_meta_table
select exists (select 1 from sqlite_schema where type = 'table' and name = 'holdfast_meta') as found;

-- name: schema_version
select schema_version from holdfast_meta where only_row = 1;

-- name: set_schema_version
update holdfast_meta set schema_version = :version where only_row = 1;
