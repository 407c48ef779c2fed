-- Categories and their events.

-- name: find_categories
select category, category_id, partitions, home from {schema}.category where category = any(:categories::text[]);

-- name: list_heads
-- The partitions of one category, or of all categories.
select category.category_id, category.category, category.partitions, head.partition_id, head.position_id, head.trimmed,
       category.home
from {schema}.category as category join {schema}.head as head on head.category_id = category.category_id
where :category::text is null or category.category = :category::text
order by category.category, head.partition_id;

-- name: list_homes
-- The categories whose events another system keeps.
select category, category_id, partitions, home from {schema}.category where home is not null order by category;

-- name: home_of_category
select home from {schema}.category where category_id = :category_id::integer;

-- name: set_home
update {schema}.category set home = :home::text, partitions = :partitions::integer where category = :category::text;

-- name: note_head
-- The head of a partition whose events another system keeps.
update {schema}.head set position_id = :position_id, trimmed = :trimmed
where category_id = :category_id and partition_id = :partition_id;

-- name: stream_version
select coalesce(
    (select version from {schema}.event where category_id = category.category_id and stream = :stream::text
     order by version desc limit 1),
    (select version from {schema}.trimmed_stream
     where category_id = category.category_id and stream = :stream::text limit 1),
    0
) as version
from {schema}.category as category where category.category = :category::text;

-- name: readers_of_partition
-- The consumers that read a partition: those of its category, of single streams in it, and of the log; with the
-- position of their share, if it exists already, and the position of their first parked event. One statement, so that a
-- commit's parked events are seen together with its position.
select consumer.stream, allocation.position_id, (
    select position_id from {schema}.event where event_id = (
        select event_id from {schema}.parked as parked
        where parked.consumer = consumer.consumer and parked.category_id = :category_id::integer
          and parked.partition_id = :partition_id::integer
        order by parked.consumer, parked.category_id, parked.partition_id, parked.position_id limit 1
    )
) as first_parked
from {schema}.consumer as consumer
left join {schema}.allocation as allocation on allocation.consumer = consumer.consumer
    and allocation.category_id = :category_id::integer and allocation.partition_id = :partition_id::integer
where not consumer.forgotten and (consumer.category is null or consumer.category = :category::text);

-- name: position_of_version
select position_id from {schema}.event
where category_id = :category_id::integer and stream = :stream::text and version > :after::bigint
order by version limit 1;

-- name: note_trimmed_streams
-- Record the versions of streams whose events are trimmed: a stream without events continues from there.
insert into {schema}.trimmed_stream as known (category_id, stream, version)
select :category_id::integer, stream, max(version) from {schema}.event
where category_id = :category_id::integer and partition_id = :partition_id::integer
  and position_id > :after::bigint and position_id <= :last::bigint
group by stream order by stream
on conflict (category_id, stream) do update set version = excluded.version
where known.version < excluded.version;

-- name: trim_events
delete from {schema}.event
where category_id = :category_id::integer and partition_id = :partition_id::integer
  and position_id > :after::bigint and position_id <= :last::bigint;

-- name: move_trimmed
update {schema}.head set trimmed = greatest(trimmed, :last::bigint)
where category_id = :category_id::integer and partition_id = :partition_id::integer;

-- name: add_category
insert into {schema}.category (category, partitions) values (:category, :partitions) on conflict do nothing;

-- name: add_head
insert into {schema}.head (category_id, partition_id) values (:category_id, :partition_id) on conflict do nothing;

-- name: move_head
update {schema}.head set position_id = :position_id, recorded_at = :recorded_at
where category_id = :category_id and partition_id = :partition_id;
