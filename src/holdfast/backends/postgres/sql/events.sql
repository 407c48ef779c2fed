-- Categories and their events.
--
-- An append is two statements of one transaction. The first locks the heads of the partitions, in ascending order; the
-- second begins, and takes its snapshot, only when all are locked, so it sees what the former holders have committed:
-- the heads, the versions of streams, the ids that are known.

-- name: find_categories
select category, category_id, partitions from {schema}.category where category = any(%(categories)s::text[]);

-- name: add_categories
-- Waits for a transaction in flight that makes one of them, and then leaves it as it is.
insert into {schema}.category (category, partitions)
select category, %(partitions)s::integer from unnest(%(categories)s::text[]) as given (category) order by category
on conflict (category) do nothing
returning category;

-- name: add_heads
insert into {schema}.head (category_id, partition_id)
select category.category_id, number
from unnest(%(categories)s::text[]) as given (category)
cross join lateral (
    select category_id, partitions from {schema}.category where category = given.category limit 1
) as category
cross join lateral generate_series(0, category.partitions - 1) as number
on conflict (category_id, partition_id) do nothing;

-- name: list_categories
select category.category, category.partitions, array_agg(head.position_id order by head.partition_id),
       array_agg(head.trimmed order by head.partition_id)
from {schema}.category as category join {schema}.head as head on head.category_id = category.category_id
where %(category)s::text is null or category.category = %(category)s::text
group by category.category, category.partitions
order by category.category;

-- name: lock_heads
-- The caller sorts the places, so that two appends cannot lock each other out.
select head.position_id
from unnest(%(category_ids)s::integer[], %(partition_ids)s::integer[]) with ordinality
    as given (category_id, partition_id, place)
cross join lateral (
    select position_id from {schema}.head
    where category_id = given.category_id and partition_id = given.partition_id limit 1
    for update
) as head;

-- name: append_events
-- Under the locks of `lock_heads`. Writes all that is new, or nothing if the version of a stream is not the one expected;
-- says of each event where it lies, whether it is new, or that its version was in conflict (then `version` is the actual
-- one).
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
-- The same for a single event, which most appends are: fewer parameters for the driver, no windows for the server.
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
-- Under the locks of `lock_heads`.
select given.category_id, given.partition_id, head.position_id, greatest(instant.now, head.recorded_at)
from (select {now} as now) as instant
cross join unnest(%(category_ids)s::integer[], %(partition_ids)s::integer[]) as given (category_id, partition_id)
cross join lateral (
    select position_id, recorded_at from {schema}.head
    where category_id = given.category_id and partition_id = given.partition_id limit 1
) as head;

-- name: known_events
select event.event_id::text, event.version, event.partition_id, event.position_id
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

-- name: move_heads
update {schema}.head as head set position_id = given.position_id, recorded_at = given.recorded_at
from unnest(
    %(category_ids)s::integer[], %(partition_ids)s::integer[], %(position_ids)s::bigint[], %(recorded_ats)s::bigint[]
) as given (category_id, partition_id, position_id, recorded_at)
where head.category_id = given.category_id and head.partition_id = given.partition_id;

-- name: read_partition
select event.event_id::text, category.category, event.stream, event.event_name, event.version, event.partition_id,
       event.position_id, event.payload, event.headers, event.recorded_at
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
select event.event_id::text, category.category, event.stream, event.event_name, event.version, event.partition_id,
       event.position_id, event.payload, event.headers, event.recorded_at
from {schema}.category as category
cross join lateral (
    select * from {schema}.event
    where category_id = category.category_id and stream = %(stream)s::text and version > %(after)s::bigint
    order by version limit %(limit)s::bigint
) as event
where category.category = %(category)s::text
order by event.version;

-- name: read_stream_backwards
select event.event_id::text, category.category, event.stream, event.event_name, event.version, event.partition_id,
       event.position_id, event.payload, event.headers, event.recorded_at
from {schema}.category as category
cross join lateral (
    select * from {schema}.event
    where category_id = category.category_id and stream = %(stream)s::text and version < %(after)s::bigint
    order by version desc limit %(limit)s::bigint
) as event
where category.category = %(category)s::text
order by event.version desc;

-- name: stream_version
select coalesce(
    (select version from {schema}.event where category_id = category.category_id and stream = %(stream)s::text
     order by version desc limit 1),
    (select version from {schema}.trimmed_stream
     where category_id = category.category_id and stream = %(stream)s::text limit 1),
    0
)
from {schema}.category as category where category.category = %(category)s::text;

-- name: position_at
-- Places have no holes and the times of recording never fall, so halving finds it.
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
select low from search where low >= high limit 1;

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
select low from search where low >= high limit 1;

-- name: consumers_of_partition
-- Those who read a partition: consumers of its category, of single streams of it, of the log; with their share, if they
-- have it already, and the first event that they have parked. In one statement: what a commit has parked is seen with
-- the position that it has moved.
select consumer.stream, allocation.position_id, (
        select event.position_id
        from (
            select event_id from {schema}.parked as parked
            where parked.consumer = consumer.consumer and category_id = head.category_id and partition_id = head.partition_id
            order by position_id limit 1
        ) as parked
        cross join lateral (
            select position_id from {schema}.event where event_id = parked.event_id limit 1
        ) as event
    ),
    head.category_id, head.position_id, consumer.consumer is not null, {now}
from {schema}.category as category
join {schema}.head as head
    on head.category_id = category.category_id and head.partition_id = %(partition_id)s::integer
left join {schema}.consumer as consumer
    on not consumer.forgotten and (consumer.category is null or consumer.category = category.category)
left join {schema}.allocation as allocation on allocation.consumer = consumer.consumer
    and allocation.category_id = head.category_id and allocation.partition_id = head.partition_id
where category.category = %(category)s::text;

-- name: position_of_version
select position_id from {schema}.event
where category_id = %(category_id)s::integer and stream = %(stream)s::text and version > %(after)s::bigint
order by version limit 1;

-- name: trim_events
-- The beginning of a partition: events of which none before is to be kept, oldest first. Times of recording never fall.
with old as materialized (
    select position_id from {schema}.event
    where category_id = %(category_id)s::integer and partition_id = %(partition_id)s::integer
      and position_id <= %(last)s::bigint and recorded_at < %(before)s::bigint
    order by position_id limit %(limit)s::bigint
),
gone as (
    delete from {schema}.event
    where category_id = %(category_id)s::integer and partition_id = %(partition_id)s::integer
      and position_id >= (select min(position_id) from old) and position_id <= (select max(position_id) from old)
    returning position_id, stream, version, event_id
),
noted as (
    insert into {schema}.trimmed_stream (category_id, stream, version)
    select %(category_id)s::integer, stream, max(version) from gone group by stream order by stream
    on conflict (category_id, stream) do update set version = excluded.version
    where trimmed_stream.version < excluded.version
),
unparked as (
    delete from {schema}.parked
    where event_id = any(array(select event_id from gone where %(past_unread)s::boolean))
)
select count(*), max(position_id) from gone;

-- name: move_trimmed
update {schema}.head set trimmed = greatest(trimmed, %(last)s::bigint)
where category_id = %(category_id)s::integer and partition_id = %(partition_id)s::integer;
