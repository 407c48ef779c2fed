-- Order keys: which job is the head, and which one follows. The table is named key_head.
--
-- A key is changed only by a transaction that has locked its row. A separate statement locks the row: the next one has
-- a newer snapshot, and sees all that was done earlier under that lock. Keys are locked in the order of queue and key,
-- so that two transactions cannot deadlock, and after the rows of the jobs that left them.

-- name: take_order_keys
-- For an enqueue: lock these keys, and add the missing ones, without a head. The update changes no value, but makes a
-- caller's transaction with a stricter isolation level fail if its snapshot of the key is old.
insert into {schema}.key_head as known (queue, order_key, head_seq)
select queue, order_key, 0
from unnest(%(queues)s::text[], %(order_keys)s::text[]) as given (queue, order_key)
order by queue collate "C", order_key collate "C"
on conflict (queue, order_key) do update set head_seq = known.head_seq
returning queue, order_key, key_id, head_seq;

-- name: enqueue_ordered
-- As `enqueue`, with the order keys locked. The first job of a vacant key becomes its head; all others wait. Due jobs with
-- a limit key get no state here: the caller puts them into their keys, or, with `admitted_later`, `promote` does.
with instant as materialized (select {now} as now),
given as materialized (
    select given.*, instant.now as now,
           coalesce(given.run_at, instant.now + coalesce(given.delay, 0)) as due_at
    from instant cross join unnest(
        %(ids)s::uuid[], %(lane_ids)s::integer[], %(payloads)s::text[], %(headers)s::text[],
        %(priorities)s::integer[], %(max_attempts)s::integer[], %(timeouts)s::double precision[],
        %(run_ats)s::bigint[], %(delays)s::bigint[], %(unique_keys)s::text[], %(unique_scopes)s::text[],
        %(order_keys)s::text[], %(key_ids)s::bigint[], %(vacant)s::boolean[],
        %(limit_keys)s::text[], %(admitted_later)s::boolean[]
    ) with ordinality as given (
        id, lane_id, payload, headers, priority, max_attempts, timeout, run_at, delay, unique_key, unique_scope,
        order_key, key_id, vacant, limit_key, admitted_later, place
    )
),
made as (
    insert into {schema}.job (
        id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, payload_bytes, order_key,
        limit_key, unique_key, unique_scope
    )
    select id, lane_id, payload, headers, priority, max_attempts, timeout, now,
           due_at - priority::bigint * {priority_step}, octet_length(payload), order_key, limit_key,
           unique_key, unique_scope
    from given order by place
    on conflict (id) do nothing
    returning seq, id, lane_id, turn, payload_bytes, turn + priority::bigint * {priority_step} as due_at
),
standing as materialized (
    select made.*, given.key_id, given.admitted_later,
           given.key_id is null
               or (given.vacant and made.seq = min(made.seq) over (partition by given.key_id)) as is_head,
           given.key_id is null and given.limit_key is not null as is_limited
    from made
    join (
        select distinct on (id) id, key_id, vacant, limit_key, admitted_later from given order by id, place
    ) as given on given.id = made.id
),
readied as (
    insert into {schema}.ready (lane_id, turn, seq, payload_bytes, followed)
    select lane_id, turn, seq, payload_bytes, key_id is not null from standing cross join instant
    where is_head and due_at <= now and not is_limited
),
delayed as (
    insert into {schema}.scheduled (run_at, seq, retrying, followed)
    select due_at, seq, false, key_id is not null from standing cross join instant
    where is_head and (due_at > now or (is_limited and admitted_later))
),
waiting as (
    insert into {schema}.blocked (seq, key_id, place) select seq, key_id, seq from standing where not is_head
),
counted as (
    insert into {schema}.tally (minute_at, lane_id, enqueued)
    select now - now %% {minute}, lane_id, count(*) from made cross join instant group by now, lane_id
)
select id::text, lane_id, turn, seq, is_head and due_at <= now and not is_limited, case when is_head then key_id end,
       is_limited and due_at <= now and not admitted_later
from standing cross join instant;

-- name: set_heads
update {schema}.key_head as head set head_seq = given.seq
from unnest(%(key_ids)s::bigint[], %(seqs)s::bigint[]) as given (key_id, seq)
where head.key_id = any(array(select unnest(%(key_ids)s::bigint[]))) and head.key_id = given.key_id;

-- name: drop_order_keys
delete from {schema}.key_head where key_id = any(array(select unnest(%(key_ids)s::bigint[])));

-- name: add_order_key
-- Add a missing key, without a head. As in `take_order_keys`, the update only detects an old snapshot.
insert into {schema}.key_head as known (queue, order_key, head_seq) values (%(queue)s, %(order_key)s, 0)
on conflict (queue, order_key) do update set head_seq = known.head_seq;

-- name: lock_order_keys
-- The keys of these jobs, in the order in which every transaction locks keys, whether the jobs have children, and limit keys.
select head.key_id, coalesce(head.head_seq, 0) as head_seq, past.seq,
       (select 1 from {schema}.parent_link as link where link.parent_seq = past.seq limit 1) is not null as is_parent,
       past.limit_key is not null as is_limited
from (
    select given.seq, lane.queue, job.order_key, job.limit_key
    from unnest(%(seqs)s::bigint[]) as given (seq)
    cross join lateral (select lane_id, order_key, limit_key from {schema}.job where seq = given.seq limit 1) as job
    join {schema}.lane as lane on lane.lane_id = job.lane_id
    order by lane.queue collate "C", job.order_key collate "C"
) as past
left join lateral (
    select key_id, head_seq from {schema}.key_head
    where queue = past.queue and order_key = past.order_key limit 1
    for update
) as head on true;

-- name: next_place
select nextval('{schema}.job_seq');

-- name: put_blocked
-- At the end of its key: after the places of all earlier enqueues.
insert into {schema}.blocked (seq, key_id, place, attempt, excused, interrupted, lost, followed)
values (
    %(seq)s, %(key_id)s, currval('{schema}.job_seq'), %(attempt)s, %(excused)s, %(interrupted)s, %(lost)s, %(followed)s
);

-- name: bring_up
-- These keys are locked and have no head. The first blocked job of each becomes its head; a key without one is removed.
-- Waits for a job that is being cancelled: then it becomes the head after all, or the next one does.
with instant as materialized (select {now} as now),
first as materialized (
    select given.key_id, waiting.seq, waiting.attempt, waiting.excused, waiting.interrupted, waiting.lost
    from unnest(%(key_ids)s::bigint[]) as given (key_id)
    cross join lateral (
        select seq, attempt, excused, interrupted, lost from {schema}.blocked
        where key_id = given.key_id order by place limit 1
        for update
    ) as waiting
),
gone as (
    delete from {schema}.blocked where seq = any(array(select seq from first))
),
headed as (
    update {schema}.key_head as head set head_seq = first.seq from first
    where head.key_id = any(array(select key_id from first)) and head.key_id = first.key_id
),
removed as (
    delete from {schema}.key_head
    where key_id = any(array(select unnest(%(key_ids)s::bigint[]) except select key_id from first))
),
up as materialized (
    select first.*, job.lane_id, job.turn, job.payload_bytes,
           job.turn + job.priority::bigint * {priority_step} as due_at
    from first cross join lateral (
        select lane_id, turn, priority, payload_bytes from {schema}.job where seq = first.seq limit 1
    ) as job
),
readied as (
    insert into {schema}.ready (lane_id, turn, seq, payload_bytes, attempt, excused, interrupted, lost, followed)
    select lane_id, turn, seq, payload_bytes, attempt, excused, interrupted, lost, true
    from up cross join instant where due_at <= now
),
delayed as (
    insert into {schema}.scheduled (run_at, seq, retrying, attempt, excused, interrupted, lost, followed)
    select due_at, seq, false, attempt, excused, interrupted, lost, true from up cross join instant where due_at > now
)
select lane_id, turn, seq from up cross join instant where due_at <= now;
