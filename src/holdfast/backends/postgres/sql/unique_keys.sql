-- Unique keys. `claims` is a JSON list of objects. jobs.sql explains the query plans.
--
-- A key is decided on only by a transaction that has locked its row. A separate statement locks the rows: the next one
-- has a newer snapshot, and sees the jobs of all transactions that it waited for. Keys are locked in the order of task
-- and key, after rows of jobs that run or have ended, and before order keys and rows of jobs that wait.

-- name: enqueue_unique
-- The usual case in one statement: no job has taken one of the keys. Otherwise nothing is written and nothing returned. A
-- key that another transaction has added meanwhile, and an id that is known, make the statement fail: it then writes
-- nothing either. The keys come first, and in order, as everywhere.
with instant as materialized (select {now} as now),
given as materialized (
    select given.*, instant.now as now,
           coalesce(given.run_at, instant.now + coalesce(given.delay, 0)) as due_at
    from instant cross join unnest(
        %(ids)s::uuid[], %(lane_ids)s::integer[], %(payloads)s::text[], %(headers)s::text[],
        %(priorities)s::integer[], %(max_attempts)s::integer[], %(timeouts)s::double precision[],
        %(run_ats)s::bigint[], %(delays)s::bigint[], %(unique_keys)s::text[], %(unique_scopes)s::text[],
        %(tasks)s::text[], %(periods)s::bigint[]
    ) with ordinality as given (
        id, lane_id, payload, headers, priority, max_attempts, timeout, run_at, delay, unique_key, unique_scope,
        task, period, place
    )
),
found as materialized (
    select 1 from given cross join lateral (
        select id from {schema}.unique_key where task = given.task and unique_key = given.unique_key limit 1
    ) as taken limit 1
),
kept as (
    insert into {schema}.unique_key (task, unique_key, id, unique_scope, until_at)
    select task, unique_key, id, unique_scope, now + period from given
    where not exists (select from found) order by task collate "C", unique_key collate "C"
    returning 1
),
made as (
    insert into {schema}.job (
        id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, payload_bytes,
        unique_key, unique_scope
    )
    select id, lane_id, payload, headers, priority, max_attempts, timeout, now,
           due_at - priority::bigint * {priority_step}, octet_length(payload), unique_key, unique_scope
    from given where (select count(*) from kept) > 0 order by place
    returning seq, id, lane_id, turn, payload_bytes, turn + priority::bigint * {priority_step} as due_at
),
{place_made};

-- name: enqueue_unique_one
-- The same for a single job. Without arrays the server keeps the plan: planning takes longer than all the rest.
with instant as materialized (select {now} as now),
kept as (
    insert into {schema}.unique_key (task, unique_key, id, unique_scope, until_at)
    select %(task)s, %(unique_key)s, %(id)s::uuid, %(unique_scope)s, now + %(period)s::bigint from instant
    where (select id from {schema}.unique_key where task = %(task)s and unique_key = %(unique_key)s limit 1) is null
    returning id
),
made as (
    insert into {schema}.job (
        id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, payload_bytes,
        unique_key, unique_scope
    )
    select kept.id, %(lane_id)s, %(payload)s, %(headers)s, %(priority)s, %(max_attempts)s,
           %(timeout)s::double precision, now,
           coalesce(%(run_at)s::bigint, now + coalesce(%(delay)s::bigint, 0)) - %(priority)s::bigint * {priority_step},
           octet_length(%(payload)s::text), %(unique_key)s, %(unique_scope)s
    from instant cross join kept
    returning seq, id, lane_id, turn, payload_bytes, turn + priority::bigint * {priority_step} as due_at
),
{place_one_made};

-- name: add_unique_keys
-- Add the missing keys. It waits for a transaction that has added one of them, and makes a caller's
-- transaction with a stricter isolation level fail if such a key is newer than its snapshot.
insert into {schema}.unique_key (task, unique_key, id, unique_scope, until_at)
select task, unique_key, id, unique_scope, {now} + period
from unnest(
    %(task)s::text[], %(unique_key)s::text[], %(id)s::uuid[], %(unique_scope)s::text[], %(period)s::bigint[]
) as given (task, unique_key, id, unique_scope, period)
where %(again)s::boolean or (select seq from {schema}.job where job.id = given.id limit 1) is null
order by task collate "C", unique_key collate "C"
on conflict (task, unique_key) do nothing;

-- name: lock_unique_keys
-- Those that existed. The caller sorts them, so that two such calls cannot deadlock.
select 1 as locked
from json_to_recordset(%(claims)s::json) as given (task text, unique_key text)
cross join lateral (
    select id from {schema}.unique_key where task = given.task and unique_key = given.unique_key for update
) as held;

-- name: unique_holders
-- For each claim its key, the stage of the job that took it last, and whether the claim's own id is known.
select {holder_columns}
from json_to_recordset(%(claims)s::json) as given (task text, unique_key text, id uuid)
{holder_rows};

-- name: hold_unique_keys
-- The rows exist, and are locked: this finds each through the primary key.
insert into {schema}.unique_key (task, unique_key, id, unique_scope, until_at, replaced_by)
select * from unnest(
    %(task)s::text[], %(unique_key)s::text[], %(id)s::uuid[], %(unique_scope)s::text[], %(until_at)s::bigint[],
    %(replaced_by)s::uuid[]
)
on conflict (task, unique_key) do update
set id = excluded.id, unique_scope = excluded.unique_scope, until_at = excluded.until_at, replaced_by = excluded.replaced_by;

-- name: drop_unique_keys
delete from {schema}.unique_key where ctid = any(array(
    select old.place from unnest(%(task)s::text[], %(unique_key)s::text[], %(id)s::uuid[]) as given (task, unique_key, id)
    cross join lateral (
        select ctid as place from {schema}.unique_key
        where task = given.task and unique_key = given.unique_key and id = given.id limit 1
    ) as old
));

-- name: drop_keys_of_pruned
-- Skips keys that another transaction has locked, which may be that of a slow handler: such a row says of a job that
-- does not exist that it took the key, so the key is free, and the next job with it overwrites the row.
delete from {schema}.unique_key where ctid = any(array(
    select old.place from unnest(%(task)s::text[], %(unique_key)s::text[], %(id)s::uuid[]) as given (task, unique_key, id)
    cross join lateral (
        select ctid as place from {schema}.unique_key
        where task = given.task and unique_key = given.unique_key and id = given.id and until_at is null limit 1
        for update skip locked
    ) as old
));

-- name: prune_unique_keys
delete from {schema}.unique_key where ctid = any(array(
    select ctid from {schema}.unique_key where until_at <= (select {now}) order by until_at limit %(limit)s
    for update skip locked
));

-- name: set_arguments
update {schema}.job
set payload = (%(payload)s::text[])[array_position(%(seq)s::bigint[], seq)],
    payload_bytes = octet_length((%(payload)s::text[])[array_position(%(seq)s::bigint[], seq)]),
    turn = (%(turn)s::bigint[])[array_position(%(seq)s::bigint[], seq)]
where seq = any(array(select unnest(%(seq)s::bigint[])));
