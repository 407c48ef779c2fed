-- Categories and their events.

-- name: lock_head
-- Locked in ascending order by all appends, until they commit: positions have no gaps, and commit in their order.
select category_id, partition_id, position_id, recorded_at from holdfast_head
where category_id = :category_id and partition_id = :partition_id for update;

-- name: add_event
insert into holdfast_event
    (category_id, partition_id, position_id, stream, version, event_id, event_name, payload, headers, recorded_at)
values (
    :category_id, :partition_id, :position_id, :stream, :version, :event_id, :event_name, :payload, :headers, :recorded_at
);

-- name: known_events
select event_id, version, partition_id, position_id from holdfast_event where event_id in (:ids);

-- name: version_of_stream
-- The version of the last event, or the one that was recorded when that event was trimmed.
select coalesce(
    (select version from holdfast_event force index (by_stream) where category_id = :category_id and stream = :stream
     order by version desc limit 1),
    (select version from holdfast_trimmed_stream where category_id = :category_id and stream = :stream),
    0
) as version;

-- name: stream_version
select coalesce(
    (select version from holdfast_event force index (by_stream)
     where category_id = category.category_id and stream = :stream
     order by version desc limit 1),
    (select version from holdfast_trimmed_stream
     where category_id = category.category_id and stream = :stream limit 1),
    0
) as version
from holdfast_category as category where category.category = :category;

-- name: read_partition
select event.event_id, :category as category, event.stream, event.event_name, event.version, event.partition_id,
       event.position_id, event.payload, event.headers, event.recorded_at
from holdfast_event as event force index (primary)
where event.category_id = (select category_id from holdfast_category where category = :category)
  and event.partition_id = :partition_id and event.position_id > :after
order by event.category_id, event.partition_id, event.position_id limit :limit;

-- name: read_stream
select event.event_id, :category as category, event.stream, event.event_name, event.version, event.partition_id,
       event.position_id, event.payload, event.headers, event.recorded_at
from holdfast_event as event force index (by_stream)
where event.category_id = (select category_id from holdfast_category where category = :category)
  and event.stream = :stream and event.version > :after
order by event.version limit :limit;

-- name: read_stream_backwards
select event.event_id, :category as category, event.stream, event.event_name, event.version, event.partition_id,
       event.position_id, event.payload, event.headers, event.recorded_at
from holdfast_event as event force index (by_stream)
where event.category_id = (select category_id from holdfast_category where category = :category)
  and event.stream = :stream and event.version < :after
order by event.version desc limit :limit;

-- name: position_at
-- Positions have no gaps and recorded_at never decreases, so a binary search finds it.
with recursive search (category_id, low, high) as (
    select head.category_id, head.trimmed, head.position_id
    from holdfast_category as category straight_join holdfast_head as head on head.category_id = category.category_id
    where category.category = :category and head.partition_id = :partition_id
    union all
    select search.category_id,
           case when event.recorded_at >= :at then search.low else (search.low + search.high + 1) div 2 end,
           case when event.recorded_at >= :at then (search.low + search.high + 1) div 2 - 1 else search.high end
    from search
    left join holdfast_event as event on event.category_id = search.category_id and event.partition_id = :partition_id
        and event.position_id = (search.low + search.high + 1) div 2
    where search.low < search.high
)
select low as position_id from search where low >= high limit 1;

-- name: version_at
with recursive search (category_id, low, high) as (
    select category.category_id,
        coalesce(
            (select min(version) - 1 from holdfast_event where category_id = category.category_id and stream = :stream),
            (select version from holdfast_trimmed_stream where category_id = category.category_id and stream = :stream),
            0
        ),
        coalesce(
            (select max(version) from holdfast_event where category_id = category.category_id and stream = :stream),
            (select version from holdfast_trimmed_stream where category_id = category.category_id and stream = :stream),
            0
        )
    from holdfast_category as category where category.category = :category
    union all
    select search.category_id,
           case when event.recorded_at >= :at then search.low else (search.low + search.high + 1) div 2 end,
           case when event.recorded_at >= :at then (search.low + search.high + 1) div 2 - 1 else search.high end
    from search
    left join holdfast_event as event on event.category_id = search.category_id and event.stream = :stream
        and event.version = (search.low + search.high + 1) div 2
    where search.low < search.high
)
select low as version from search where low >= high limit 1;

-- name: note_trimmed_streams
-- Record the versions of streams whose events are trimmed: a stream without events continues from there.
insert into holdfast_trimmed_stream (category_id, stream, version)
select category_id, stream, max(version) from holdfast_event
where category_id = :category_id and partition_id = :partition_id and position_id > :after and position_id <= :last
group by category_id, stream
on duplicate key update version = greatest(holdfast_trimmed_stream.version, values(version));

-- name: drop_trimmed_parked
-- From the side of the parked events, which have no index on the id of the event.
delete gone from (
    select parked.consumer, parked.partition_id, parked.position_id from holdfast_parked as parked
    straight_join holdfast_event as event force index (by_id) on event.event_id = parked.event_id
    where event.category_id = :category_id and event.partition_id = :partition_id
      and event.position_id > :after and event.position_id <= :last
    limit 10000000
) as given
straight_join holdfast_parked as gone force index (primary)
    on gone.consumer = given.consumer and gone.category_id = :category_id and gone.partition_id = given.partition_id
    and gone.position_id = given.position_id;

-- name: sizes_of_partition
select octet_length(event.payload) from holdfast_event as event force index (primary)
where event.category_id = (select category_id from holdfast_category where category = :category)
  and event.partition_id = :partition_id and event.position_id > :after
order by event.category_id, event.partition_id, event.position_id limit :limit;

-- name: sizes_of_stream
select octet_length(event.payload) from holdfast_event as event force index (by_stream)
where event.category_id = (select category_id from holdfast_category where category = :category)
  and event.stream = :stream and event.version > :after
order by event.version limit :limit;

-- name: find_head
select position_id, recorded_at from holdfast_head
where category_id = :category_id and partition_id = :partition_id;
