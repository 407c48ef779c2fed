-- Categories and their events.

-- name: find_category
select category_id, partitions from holdfast_category where category = :category;

-- name: add_category
insert into holdfast_category (category, partitions) values (:category, :partitions) returning category_id;

-- name: add_head
insert into holdfast_head (category_id, partition_id) values (?, ?);

-- name: list_categories
select category, partitions, json_group_array(position_id), json_group_array(trimmed)
from (
    select category, partitions, position_id, trimmed
    from holdfast_category join holdfast_head using (category_id)
    order by category, partition_id
)
group by category, partitions
order by category;

-- name: head
select position_id, trimmed, recorded_at from holdfast_head
where category_id = :category_id and partition_id = :partition_id;

-- name: move_head
update holdfast_head set position_id = ?, recorded_at = ? where category_id = ? and partition_id = ?;

-- name: known_event
select version, partition_id, position_id from holdfast_event where event_id = :event_id;

-- name: any_known_event
select 1 from holdfast_event where event_id in (select value from json_each(:event_ids)) limit 1;

-- name: stream_version
-- The last event of the stream tells, or what was noted when its last one was trimmed.
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
from holdfast_event join holdfast_category using (category_id)
where category_id = :category_id and partition_id = :partition_id and position_id > :after
order by position_id limit :limit;

-- name: read_stream
select event_id, category, stream, event_name, version, partition_id, position_id, payload, headers, recorded_at
from holdfast_event join holdfast_category using (category_id)
where category_id = :category_id and stream = :stream and version > :after
order by version limit :limit;

-- name: read_stream_backwards
select event_id, category, stream, event_name, version, partition_id, position_id, payload, headers, recorded_at
from holdfast_event join holdfast_category using (category_id)
where category_id = :category_id and stream = :stream and version < :after
order by version desc limit :limit;

-- name: event_by_id
select event_id, category, stream, event_name, version, partition_id, position_id, payload, headers, recorded_at
from holdfast_event join holdfast_category using (category_id) where event_id = :event_id;

-- name: recorded_at_position
select recorded_at from holdfast_event
where category_id = :category_id and partition_id = :partition_id and position_id = :position;

-- name: recorded_at_version
select recorded_at from holdfast_event where category_id = :category_id and stream = :stream and version = :position;

-- name: first_version
select min(version) from holdfast_event where category_id = :category_id and stream = :stream;

-- name: oldest_events
select position_id, stream, version from holdfast_event
where category_id = :category_id and partition_id = :partition_id and position_id <= :last and recorded_at < :before
order by position_id limit :limit;

-- name: trim_events
delete from holdfast_event
where category_id = :category_id and partition_id = :partition_id and position_id <= :last;

-- name: trim_parked
-- What is deleted though somebody had parked it is parked no longer.
delete from holdfast_parked where category_id = :category_id and partition_id = :partition_id
    and event_id not in (select event_id from holdfast_event
        where category_id = :category_id and partition_id = :partition_id);

-- name: move_trimmed
update holdfast_head set trimmed = :last where category_id = :category_id and partition_id = :partition_id;

-- name: note_trimmed_stream
insert into holdfast_trimmed_stream (category_id, stream, version) values (?, ?, ?)
on conflict (category_id, stream) do update set version = max(version, excluded.version);

-- name: consumers_of_category
-- The consumers that read a category: its own, those of single streams, those of the log; with their share, if they
-- have it already.
select consumer.consumer, consumer.stream, allocation.position_id
from holdfast_consumer as consumer left join holdfast_allocation as allocation
    on allocation.consumer = consumer.consumer and allocation.category_id = :category_id
    and allocation.partition_id = :partition_id
where not consumer.forgotten and (consumer.category is null or consumer.category = :category);

-- name: first_parked
select min(event.position_id)
from holdfast_parked as parked join holdfast_event as event on event.event_id = parked.event_id
where parked.category_id = :category_id and parked.partition_id = :partition_id;

-- name: position_of_version
select position_id from holdfast_event where category_id = :category_id and stream = :stream and version > :after
order by version limit 1;
