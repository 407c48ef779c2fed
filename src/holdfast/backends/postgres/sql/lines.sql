-- The lines of order keys: who stands in them, and who comes up.
--
-- A line is changed only by who holds its row in key_line. The row is taken in a statement of its own: the next one has a
-- newer snapshot, and sees all that was done before by others who held it. Lines are taken in order of queue and key, so
-- that two who need several do not lock each other out, and after the rows of the jobs that have left them.

-- name: take_lines
-- Make those that are not there, without a head. The update changes nothing, but a caller's transaction of a stricter
-- isolation is told that its snapshot of the line is old.
insert into {schema}.key_line as known (queue, order_key, head_seq)
select queue, order_key, 0
from unnest(%(queues)s::text[], %(order_keys)s::text[]) as given (queue, order_key)
order by queue collate "C", order_key collate "C"
on conflict (queue, order_key) do update set head_seq = known.head_seq
returning queue, order_key, line_id, head_seq;

-- name: enqueue_in_lines
-- As `enqueue`, with the lines held. Of a line that is vacant the first job becomes the head; all others wait.
with instant as materialized (select {now} as now),
given as materialized (
    select given.*, instant.now as now,
           coalesce(given.run_at, instant.now + coalesce(given.delay, 0)) as due_at
    from instant cross join unnest(
        %(ids)s::uuid[], %(lane_ids)s::integer[], %(payloads)s::text[], %(headers)s::text[],
        %(priorities)s::integer[], %(max_attempts)s::integer[], %(timeouts)s::double precision[],
        %(run_ats)s::bigint[], %(delays)s::bigint[], %(order_keys)s::text[], %(line_ids)s::bigint[],
        %(vacant)s::boolean[]
    ) with ordinality as given (
        id, lane_id, payload, headers, priority, max_attempts, timeout, run_at, delay, order_key, line_id, vacant,
        place
    )
),
made as (
    insert into {schema}.job (
        id, lane_id, payload, headers, priority, max_attempts, timeout, enqueued_at, turn, payload_bytes, order_key
    )
    select id, lane_id, payload, headers, priority, max_attempts, timeout, now,
           due_at - priority::bigint * {priority_step}, octet_length(payload), order_key
    from given order by place
    on conflict (id) do nothing
    returning seq, id, lane_id, turn, payload_bytes, turn + priority::bigint * {priority_step} as due_at
),
standing as materialized (
    select made.*, given.line_id,
           given.line_id is null
               or (given.vacant and made.seq = min(made.seq) over (partition by given.line_id)) as is_head
    from made
    join (select distinct on (id) id, line_id, vacant from given order by id, place) as given on given.id = made.id
),
readied as (
    insert into {schema}.ready (lane_id, turn, seq, payload_bytes, keyed)
    select lane_id, turn, seq, payload_bytes, line_id is not null from standing cross join instant
    where is_head and due_at <= now
),
delayed as (
    insert into {schema}.scheduled (run_at, seq, retrying, keyed)
    select due_at, seq, false, line_id is not null from standing cross join instant where is_head and due_at > now
),
waiting as (
    insert into {schema}.blocked (seq, line_id, place) select seq, line_id, seq from standing where not is_head
),
counted as (
    insert into {schema}.tally (minute_at, lane_id, enqueued)
    select now - now %% {minute}, lane_id, count(*) from made cross join instant group by now, lane_id
)
select id::text, lane_id, turn, seq, is_head and due_at <= now, case when is_head then line_id end
from standing cross join instant;

-- name: set_heads
update {schema}.key_line as line set head_seq = given.seq
from unnest(%(line_ids)s::bigint[], %(seqs)s::bigint[]) as given (line_id, seq)
where line.line_id = any(array(select unnest(%(line_ids)s::bigint[]))) and line.line_id = given.line_id;

-- name: drop_lines
delete from {schema}.key_line where line_id = any(array(select unnest(%(line_ids)s::bigint[])));

-- name: block
insert into {schema}.blocked (seq, line_id, place, attempt, excused, interrupted, lost)
values (%(seq)s, %(line_id)s, nextval('{schema}.job_seq'), %(attempt)s, %(excused)s, %(interrupted)s, %(lost)s);

-- name: take_blocked
delete from {schema}.blocked where seq = %(seq)s returning attempt, lost;

-- name: lock_lines
-- The lines whose heads these jobs were.
select line.line_id
from (
    select given.seq, lane.queue, job.order_key
    from unnest(%(seqs)s::bigint[]) as given (seq)
    cross join lateral (select lane_id, order_key from {schema}.job where seq = given.seq limit 1) as job
    join {schema}.lane as lane on lane.lane_id = job.lane_id
    order by lane.queue collate "C", job.order_key collate "C"
) as past
cross join lateral (
    select line_id, head_seq from {schema}.key_line
    where queue = past.queue and order_key = past.order_key limit 1
    for update
) as line
where line.head_seq = past.seq;

-- name: bring_up
-- Of each of these lines, which are held and have no head, the first who waits becomes the head; a line in which nobody
-- waits is removed. One who is being cancelled is waited for: then it stays, or the next is first.
with instant as materialized (select {now} as now),
first as materialized (
    select given.line_id, waiting.seq, waiting.attempt, waiting.excused, waiting.interrupted, waiting.lost
    from unnest(%(line_ids)s::bigint[]) as given (line_id)
    cross join lateral (
        select seq, attempt, excused, interrupted, lost from {schema}.blocked
        where line_id = given.line_id order by place limit 1
        for update
    ) as waiting
),
gone as (
    delete from {schema}.blocked where seq = any(array(select seq from first))
),
headed as (
    update {schema}.key_line as line set head_seq = first.seq from first
    where line.line_id = any(array(select line_id from first)) and line.line_id = first.line_id
),
removed as (
    delete from {schema}.key_line
    where line_id = any(array(select unnest(%(line_ids)s::bigint[]) except select line_id from first))
),
up as materialized (
    select first.*, job.lane_id, job.turn, job.payload_bytes,
           job.turn + job.priority::bigint * {priority_step} as due_at
    from first cross join lateral (
        select lane_id, turn, priority, payload_bytes from {schema}.job where seq = first.seq limit 1
    ) as job
),
readied as (
    insert into {schema}.ready (lane_id, turn, seq, payload_bytes, attempt, excused, interrupted, lost, keyed)
    select lane_id, turn, seq, payload_bytes, attempt, excused, interrupted, lost, true
    from up cross join instant where due_at <= now
),
delayed as (
    insert into {schema}.scheduled (run_at, seq, retrying, attempt, excused, interrupted, lost, keyed)
    select due_at, seq, false, attempt, excused, interrupted, lost, true from up cross join instant where due_at > now
)
select lane_id, turn, seq from up cross join instant where due_at <= now;
