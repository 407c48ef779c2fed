-- Pruning, queues, and the version of the schema.

-- name: old_completed
-- Without parents of jobs that have not ended.
select ended.seq from holdfast_completed as ended
where ended.finished_at <= :now - :keep
  and (select 1 from holdfast_parent_link as link
       where link.parent_seq = ended.seq
         and (select 1 from holdfast_completed as child where child.seq = link.child_seq limit 1) is null
         and (select 1 from holdfast_failed as child where child.seq = link.child_seq limit 1) is null
         and (select 1 from holdfast_cancelled as child where child.seq = link.child_seq limit 1) is null
       limit 1) is null
order by ended.finished_at limit :limit;

-- name: prune_counts
delete from holdfast_count where minute_at < :now - :keep;

-- name: has_meta_table
select exists (select 1 from sqlite_schema where type = 'table' and name = 'holdfast_meta') as found;

-- name: schema_version
select schema_version from holdfast_meta where only_row = 1;

-- name: set_schema_version
update holdfast_meta set schema_version = :version where only_row = 1;
