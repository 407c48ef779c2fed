-- Categories and their events.
--
-- An append is two statements in one transaction. The first locks the heads of the partitions, in ascending order. The
-- second starts, and takes its snapshot, only when all are locked, so it sees what earlier appends have committed: the
-- heads, the versions of streams, the known ids.

-- name: add_category
-- Waits for a concurrent transaction that adds one of these categories, and then leaves that one unchanged.
insert into {schema}.category (category, partitions)
select category, partitions
from unnest(%(category)s::text[], %(partitions)s::integer[]) as given (category, partitions) order by category
on conflict (category) do nothing;

-- name: add_head
insert into {schema}.head (category_id, partition_id)
select category_id, partition_id
from unnest(%(category_id)s::integer[], %(partition_id)s::integer[]) as given (category_id, partition_id)
on conflict (category_id, partition_id) do nothing;

-- name: lock_heads
-- The caller sorts the partitions, so that two appends cannot deadlock.
select head.position_id
from unnest(%(category_ids)s::integer[], %(partition_ids)s::integer[]) with ordinality
    as given (category_id, partition_id, place)
cross join lateral (
    select position_id from {schema}.head
    where category_id = given.category_id and partition_id = given.partition_id limit 1
    for update
) as head;

-- name: append_events
-- Requires the locks of `lock_heads`. Writes all new events, or none if a stream does not have the expected version.
-- Returns for each event its place and whether it is new, or that its version is in conflict (then `version` is the
-- actual one).
with given as materialized (
    select * from unnest(
        %(ids)s::uuid[], %(category_ids)s::integer[], %(partition_ids)s::integer[], %(streams)s::text[],
        %(names)s::text[], %(payloads)s::text[], %(headers)s::text[], %(expected)s::bigint[]
    ) with ordinality
    as given (event_id, category_id, partition_id, stream, event_name, payload, headers, expected, place)
),
known as materialized (
    select given.place, event.version, event.partition_id, event.position_id
    from given cross join lateral (
        select version, partition_id, position_id from {schema}.event where event_id = given.event_id limit 1
    ) as event
),
fresh as materialized (
    select given.*,
           row_number() over (partition by given.category_id, given.partition_id order by given.place) as step,
           row_number() over (partition by given.category_id, given.stream order by given.place) as step_of_stream
    from given left join known on known.place = given.place
    where known.place is null
),
stream as materialized (
    select first.category_id, first.stream, coalesce(
        (select version from {schema}.event where category_id = first.category_id and stream = first.stream
         order by version desc limit 1),
        (select version from {schema}.trimmed_stream
         where category_id = first.category_id and stream = first.stream limit 1),
        0
    ) as version
    from fresh as first where first.step_of_stream = 1
),
placed as materialized (
    select fresh.*, stream.version + fresh.step_of_stream as version,
           fresh.expected <> stream.version + fresh.step_of_stream - 1 as conflicts
    from fresh join stream on stream.category_id = fresh.category_id and stream.stream = fresh.stream
),
instant as materialized (select {now} as now),
ended as materialized (
    select last.category_id, last.partition_id, head.position_id, last.steps,
           greatest(instant.now, head.recorded_at) as recorded_at
    from (select category_id, partition_id, count(*) as steps from fresh group by category_id, partition_id) as last
    cross join instant
    cross join lateral (
        select position_id, recorded_at from {schema}.head
        where category_id = last.category_id and partition_id = last.partition_id limit 1
    ) as head
    where not exists (select 1 from placed where conflicts)
),
written as (
    insert into {schema}.event (
        category_id, partition_id, position_id, stream, version, event_id, event_name, payload, headers, recorded_at
    )
    select placed.category_id, placed.partition_id, ended.position_id + placed.step, placed.stream, placed.version,
           placed.event_id, placed.event_name, placed.payload, placed.headers, ended.recorded_at
    from placed join ended on ended.category_id = placed.category_id and ended.partition_id = placed.partition_id
    order by placed.place
),
moved as (
    update {schema}.head as head set position_id = ended.position_id + ended.steps, recorded_at = ended.recorded_at
    from ended where head.category_id = ended.category_id and head.partition_id = ended.partition_id
)
select placed.place, 'new', placed.version, placed.partition_id, ended.position_id + placed.step
from placed join ended on ended.category_id = placed.category_id and ended.partition_id = placed.partition_id
union all
select place, 'known', version, partition_id, position_id from known
union all
select place, 'conflict', version - 1, partition_id, 0 from placed where conflicts;

-- name: append_event
-- The same for a single event, the most frequent case: fewer parameters for the driver, no window functions.
with known as materialized (
    select version, partition_id, position_id from {schema}.event where event_id = %(event_id)s::uuid limit 1
),
stream as materialized (
    select coalesce(
        (select version from {schema}.event where category_id = %(category_id)s::integer and stream = %(stream)s::text
         order by version desc limit 1),
        (select version from {schema}.trimmed_stream
         where category_id = %(category_id)s::integer and stream = %(stream)s::text limit 1),
        0
    ) as version
    where not exists (select 1 from known)
),
moved as (
    update {schema}.head
    set position_id = head.position_id + 1, recorded_at = greatest({now}, head.recorded_at)
    from stream
    where head.category_id = %(category_id)s::integer and head.partition_id = %(partition_id)s::integer
      and coalesce(%(expected)s::bigint, stream.version) = stream.version
    returning head.position_id, head.recorded_at, stream.version + 1 as version
),
written as (
    insert into {schema}.event (
        category_id, partition_id, position_id, stream, version, event_id, event_name, payload, headers, recorded_at
    )
    select %(category_id)s::integer, %(partition_id)s::integer, position_id, %(stream)s::text, version,
           %(event_id)s::uuid, %(event_name)s::text, %(payload)s::text, %(headers)s::text, recorded_at
    from moved
)
select 1::bigint, 'new', version, %(partition_id)s::integer, position_id from moved
union all
select 1::bigint, 'known', version, partition_id, position_id from known
union all
select 1::bigint, 'conflict', version, %(partition_id)s::integer, 0 from stream
where coalesce(%(expected)s::bigint, version) <> version;

-- name: heads_and_clock
-- Requires the locks of `lock_heads`.
select given.category_id, given.partition_id, head.position_id, greatest(instant.now, head.recorded_at)
from (select {now} as now) as instant
cross join unnest(%(category_ids)s::integer[], %(partition_ids)s::integer[]) as given (category_id, partition_id)
cross join lateral (
    select position_id, recorded_at from {schema}.head
    where category_id = given.category_id and partition_id = given.partition_id limit 1
) as head;

-- name: known_events
select event.event_id::text as event_id, event.version, event.partition_id, event.position_id
from unnest(%(ids)s::uuid[]) as given (event_id)
cross join lateral (
    select event_id, version, partition_id, position_id from {schema}.event where event_id = given.event_id limit 1
) as event;

-- name: stream_versions
select given.category_id, given.stream, coalesce(
    (select version from {schema}.event where category_id = given.category_id and stream = given.stream
     order by version desc limit 1),
    (select version from {schema}.trimmed_stream
     where category_id = given.category_id and stream = given.stream limit 1),
    0
)
from unnest(%(category_ids)s::integer[], %(streams)s::text[]) as given (category_id, stream);

-- name: copy_events
copy {schema}.event (
    category_id, partition_id, position_id, stream, version, event_id, event_name, payload, headers, recorded_at
) from stdin (format binary);

-- name: move_head
update {schema}.head as head set position_id = given.position_id, recorded_at = given.recorded_at
from unnest(
    %(category_id)s::integer[], %(partition_id)s::integer[], %(position_id)s::bigint[], %(recorded_at)s::bigint[]
) as given (category_id, partition_id, position_id, recorded_at)
where head.category_id = given.category_id and head.partition_id = given.partition_id;

-- name: note_head
update {schema}.head as head set position_id = given.position_id, trimmed = given.trimmed
from unnest(
    %(category_id)s::integer[], %(partition_id)s::integer[], %(position_id)s::bigint[], %(trimmed)s::bigint[]
) as given (category_id, partition_id, position_id, trimmed)
where head.category_id = given.category_id and head.partition_id = given.partition_id;

-- part: event_columns
event.event_id::text as event_id, category.category, event.stream, event.event_name, event.version, event.partition_id,
       event.position_id, event.payload, event.headers, event.recorded_at;

-- name: read_partition
select {event_columns}
from {schema}.category as category
cross join lateral (
    select * from {schema}.event
    where category_id = category.category_id and partition_id = %(partition_id)s::integer
      and position_id > %(after)s::bigint
    order by position_id limit %(limit)s::bigint
) as event
where category.category = %(category)s::text
order by event.position_id;

-- name: read_stream
select {event_columns}
from {schema}.category as category
cross join lateral (
    select * from {schema}.event
    where category_id = category.category_id and stream = %(stream)s::text and version > %(after)s::bigint
    order by version limit %(limit)s::bigint
) as event
where category.category = %(category)s::text
order by event.version;

-- name: read_stream_backwards
select {event_columns}
from {schema}.category as category
cross join lateral (
    select * from {schema}.event
    where category_id = category.category_id and stream = %(stream)s::text and version < %(after)s::bigint
    order by version desc limit %(limit)s::bigint
) as event
where category.category = %(category)s::text
order by event.version desc;

-- name: position_at
-- Binary search: positions have no gaps, and `recorded_at` never decreases.
with recursive search (category_id, low, high) as (
    select head.category_id, head.trimmed, head.position_id
    from {schema}.category as category join {schema}.head as head on head.category_id = category.category_id
    where category.category = %(category)s::text and head.partition_id = %(partition_id)s::integer
    union all
    select search.category_id,
           case when event.recorded_at >= %(at)s::bigint then search.low else half.middle end,
           case when event.recorded_at >= %(at)s::bigint then half.middle - 1 else search.high end
    from search
    cross join lateral (select (search.low + search.high + 1) / 2 as middle) as half
    left join lateral (
        select recorded_at from {schema}.event
        where category_id = search.category_id and partition_id = %(partition_id)s::integer
          and position_id = half.middle limit 1
    ) as event on true
    where search.low < search.high
)
select low as position_id from search where low >= high limit 1;

-- name: version_at
with recursive stream (category_id, low, high) as (
    select category.category_id,
        (select version - 1 from {schema}.event where category_id = category.category_id and stream = %(stream)s::text
         order by version limit 1),
        coalesce(
            (select version from {schema}.event
             where category_id = category.category_id and stream = %(stream)s::text order by version desc limit 1),
            (select version from {schema}.trimmed_stream
             where category_id = category.category_id and stream = %(stream)s::text limit 1),
            0)
    from {schema}.category as category where category.category = %(category)s::text
),
search (category_id, low, high) as (
    select category_id, coalesce(low, high), high from stream
    union all
    select search.category_id,
           case when event.recorded_at >= %(at)s::bigint then search.low else half.middle end,
           case when event.recorded_at >= %(at)s::bigint then half.middle - 1 else search.high end
    from search
    cross join lateral (select (search.low + search.high + 1) / 2 as middle) as half
    left join lateral (
        select recorded_at from {schema}.event
        where category_id = search.category_id and stream = %(stream)s::text and version = half.middle limit 1
    ) as event on true
    where search.low < search.high
)
select low as version from search where low >= high limit 1;

-- name: drop_trimmed_parked
delete from {schema}.parked where event_id = any(array(
    select event_id from {schema}.event
    where category_id = %(category_id)s::integer and partition_id = %(partition_id)s::integer
      and position_id > %(after)s::bigint and position_id <= %(last)s::bigint
));
