-- Unique keys, under the write lock. `claims` is a JSON list of objects.

-- name: add_free_key
insert into holdfast_unique_key (task, unique_key, id, unique_scope, until_at) values (?, ?, ?, ?, ?);

-- name: add_unique_key
-- Parameters by position: binding them by name takes 1 µs more.
insert into holdfast_unique_key (task, unique_key, id, unique_scope, until_at)
select ?1, ?2, ?3, ?4, ?5 where ?6 or not exists (select 1 from holdfast_job where id = ?3)
on conflict (task, unique_key) do nothing;

-- name: lock_unique_keys
-- The write lock is held: this only has to exist.
select 1 as locked from json_each(:claims) where false;

-- name: unique_holders
-- For each claim its key, the stage of the job that took it last, and whether the claim's own id is known.
select {holder_columns}
from (
    select value ->> 'task' as task, value ->> 'unique_key' as unique_key, value ->> 'id' as id from json_each(:claims)
) as given
{holder_rows};

-- name: set_arguments
update holdfast_job set payload = :payload, turn = :turn where seq = :seq;

-- name: drop_keys_of_pruned
delete from holdfast_unique_key
where task = :task and unique_key = :unique_key and id = :id and until_at is null;

-- name: prune_unique_keys
delete from holdfast_unique_key where (task, unique_key) in (
    select task, unique_key from holdfast_unique_key where until_at <= :now order by until_at limit :limit
);
