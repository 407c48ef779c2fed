-- Unique keys. A key is decided on only by a transaction that has locked its row; the next statement has a newer
-- snapshot, and sees the jobs of all transactions that the lock has waited for.

-- name: add_missing_keys
-- Waits for a transaction that has added one of them; if that commits, this fails as a duplicate, and the verb is repeated.
insert into holdfast_unique_key (task, unique_key, id, unique_scope, until_at)
select given.task, given.unique_key, given.id, given.unique_scope, {now} + given.period
from (
    select * from json_table(:claims, '$[*]' columns (
        task varchar(128) character set utf8mb4 path '$.task', unique_key varchar(128) character set utf8mb4 path '$.unique_key', id varchar(36) character set utf8mb4 path '$.id',
        unique_scope varchar(16) character set utf8mb4 path '$.unique_scope', period bigint path '$.period'
    )) as listed
) as given
left join holdfast_unique_key as known on known.task = given.task and known.unique_key = given.unique_key
left join holdfast_job as job on job.id = given.id
where known.task is null and (:again or job.seq is null);

-- name: lock_unique_keys
-- Those that existed. The caller sorts them, so that two such calls cannot deadlock.
select 1 as locked
from (
    select * from json_table(:claims, '$[*]' columns (
        task varchar(128) character set utf8mb4 path '$.task', unique_key varchar(128) character set utf8mb4 path '$.unique_key'
    )) as listed
) as given
straight_join holdfast_unique_key as held force index (primary)
    on held.task = given.task and held.unique_key = given.unique_key
for update;

-- name: unique_holders
-- For each claim its key, the stage of the job that took it last, and whether the claim's own id is known.
select {holder_columns}
from (
    select * from json_table(:claims, '$[*]' columns (
        task varchar(128) character set utf8mb4 path '$.task', unique_key varchar(128) character set utf8mb4 path '$.unique_key', id varchar(36) character set utf8mb4 path '$.id'
    )) as listed
) as given
{holder_rows};

-- name: known_keys
-- Those of these keys that exist, without locks.
select known.task, known.unique_key
from (
    select * from json_table(:claims, '$[*]' columns (
        task varchar(128) character set utf8mb4 path '$.task', unique_key varchar(128) character set utf8mb4 path '$.unique_key'
    )) as listed
) as given
straight_join holdfast_unique_key as known force index (primary)
    on known.task = given.task and known.unique_key = given.unique_key;

-- name: new_unique_key
insert into holdfast_unique_key (task, unique_key, id, unique_scope, until_at)
values (:task, :unique_key, :id, :unique_scope, {now} + :period);

-- name: lock_unique_key
select id, unique_scope, until_at, replaced_by from holdfast_unique_key
where task = :task and unique_key = :unique_key for update;

-- name: lock_waiting
-- One job, if it is waiting: otherwise its state is null. It never waits for the transaction of a handler, which has
-- locked a row in running.
select {waiting_columns}
from holdfast_job as job
straight_join holdfast_lane as lane on lane.lane_id = job.lane_id
{waiting_rows}
where job.id = :id;

-- name: set_arguments
update holdfast_job set payload = :payload, payload_bytes = octet_length(:payload), turn = :turn where seq = :seq;

-- name: drop_keys_of_pruned
-- Skips a key that another transaction has locked, which may be that of a slow handler: such a row says of a job that
-- does not exist that it took the key, so the key is free, and the next job with it overwrites the row.
delete gone from (
    select task, unique_key from holdfast_unique_key
    where task = :task and unique_key = :unique_key and id = :id and until_at is null limit 1 for update skip locked
) as given
straight_join holdfast_unique_key as gone force index (primary)
    on gone.task = given.task and gone.unique_key = given.unique_key;

-- name: prune_unique_keys
delete gone from (
    select task, unique_key from holdfast_unique_key force index (by_end)
    where until_at <= {now} order by until_at limit :limit for update skip locked
) as given
straight_join holdfast_unique_key as gone force index (primary)
    on gone.task = given.task and gone.unique_key = given.unique_key;
