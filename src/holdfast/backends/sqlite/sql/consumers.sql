-- Consumers: positions, parked events, and the statements behind operators' commands.

-- name: lock_share
-- For a handler's transaction, which holds the write lock: from here on the share cannot be taken away.
select position_id from holdfast_allocation
where consumer = :consumer and category_id = (select category_id from holdfast_category where category = :category)
    and partition_id = :partition_id and generation = :generation and state in ('granted', 'revoking');

-- name: parked_among
-- Which of these streams have parked events other than those at `handled`. Usually nothing is parked, which one index
-- lookup shows.
select value as stream from json_each(:streams) as given
where exists (
    select 1 from holdfast_parked
    where consumer = :consumer and category_id = :category_id and partition_id = :partition_id
) and exists (
    select 1 from holdfast_parked
    where consumer = :consumer and category_id = :category_id and partition_id = :partition_id
        and stream = given.value and position_id not in (select value from json_each(:handled))
);

-- name: retrying_among
-- The streams, among these, whose last parked event is to be retried.
select value as stream from json_each(:streams) as given
where (
    select retrying from holdfast_parked
    where consumer = :consumer and category_id = :category_id and partition_id = :partition_id
        and stream = given.value
    order by position_id desc limit 1
);

-- name: list_retries
-- The first parked events that are to be handled again.
select event_id, category, event.stream, event_name, version, event.partition_id, event.position_id, payload, headers,
    recorded_at, attempts
from (
    select event_id, attempts, position_id from holdfast_parked
    where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and retrying
    order by position_id limit :limit
) as parked
    join holdfast_event as event using (event_id)
    join holdfast_category using (category_id)
order by parked.position_id;

-- name: list_parked
select category, partition_id, position_id, event_id, stream, failure, attempts, retrying, parked_at
from holdfast_parked join holdfast_category using (category_id)
where consumer = :consumer and (category, partition_id, position_id) > (:after_category, :after_partition, :after)
order by category, partition_id, position_id limit :limit;
