-- Categories and their events.

-- name: find_category
-- For appends: one name costs less than a list.
select category, category_id, partitions, home from holdfast_category where category = :category;

-- name: find_head
select position_id, recorded_at from holdfast_head
where category_id = :category_id and partition_id = :partition_id;

-- name: known_events
select event_id, version, partition_id, position_id from holdfast_event
where event_id in (select value from json_each(:ids));

-- name: version_of_stream
-- The version of its last event, or the one that was recorded when that event was trimmed.
select max(version) from (
    select max(version) as version from holdfast_event where category_id = :category_id and stream = :stream
    union all
    select version from holdfast_trimmed_stream where category_id = :category_id and stream = :stream
);

-- name: add_event
insert into holdfast_event
    (category_id, partition_id, position_id, stream, version, event_id, event_name, payload, headers, recorded_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: read_partition
select event_id, category, stream, event_name, version, partition_id, position_id, payload, headers, recorded_at
from holdfast_category as category cross join holdfast_event as event on event.category_id = category.category_id
where category = :category and partition_id = :partition_id and position_id > :after
order by position_id limit :limit;

-- name: read_stream
select event_id, category, stream, event_name, version, partition_id, position_id, payload, headers, recorded_at
from holdfast_category as category cross join holdfast_event as event on event.category_id = category.category_id
where category = :category and stream = :stream and version > :after
order by version limit :limit;

-- name: read_stream_backwards
select event_id, category, stream, event_name, version, partition_id, position_id, payload, headers, recorded_at
from holdfast_category as category cross join holdfast_event as event on event.category_id = category.category_id
where category = :category and stream = :stream and version < :after
order by version desc limit :limit;

-- name: position_at
-- Positions have no gaps and recorded_at never decreases, so a binary search finds it.
with recursive search (category_id, low, high) as (
    select category_id, trimmed, position_id from holdfast_category join holdfast_head using (category_id)
    where category = :category and partition_id = :partition_id
    union all
    select category_id,
        case when (
            select recorded_at from holdfast_event where category_id = search.category_id
                and partition_id = :partition_id and position_id = (low + high + 1) / 2
        ) >= :at then low else (low + high + 1) / 2 end,
        case when (
            select recorded_at from holdfast_event where category_id = search.category_id
                and partition_id = :partition_id and position_id = (low + high + 1) / 2
        ) >= :at then (low + high + 1) / 2 - 1 else high end
    from search where low < high
)
select low as position_id from search where low >= high limit 1;

-- name: version_at
with recursive search (category_id, low, high) as (
    select category_id,
        coalesce(
            (select min(version) - 1 from holdfast_event
                where category_id = category.category_id and stream = :stream),
            (select version from holdfast_trimmed_stream
                where category_id = category.category_id and stream = :stream),
            0
        ),
        coalesce(
            (select max(version) from holdfast_event where category_id = category.category_id and stream = :stream),
            (select version from holdfast_trimmed_stream
                where category_id = category.category_id and stream = :stream),
            0
        )
    from holdfast_category as category where category = :category
    union all
    select category_id,
        case when (
            select recorded_at from holdfast_event where category_id = search.category_id and stream = :stream
                and version = (low + high + 1) / 2
        ) >= :at then low else (low + high + 1) / 2 end,
        case when (
            select recorded_at from holdfast_event where category_id = search.category_id and stream = :stream
                and version = (low + high + 1) / 2
        ) >= :at then (low + high + 1) / 2 - 1 else high end
    from search where low < high
)
select low as version from search where low >= high limit 1;

-- name: drop_trimmed_parked
delete from holdfast_parked where event_id in (
    select event_id from holdfast_event
    where category_id = :category_id and partition_id = :partition_id and position_id > :after
        and position_id <= :last
);
