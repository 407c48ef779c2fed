-- Consumers: their positions, their parked events, and the views and actions of operators.
--
-- A handler's transaction locks the latch of its share, shared; a seizure locks the latch and then the share, and so
-- waits for the handler. A revocation and the owner's commits lock the share alone.

-- name: lock_latch
-- For a handler's transaction: until its end, no leader can seize the share.
select consumer from holdfast_share_latch
where consumer = :consumer and category = :category and partition_id = :partition_id and :milliseconds > 0
lock in share mode;

-- name: lock_share
-- After its latch is locked: reads what a seizure that the latch has waited for has written.
select position_id from holdfast_allocation
where consumer = :consumer and partition_id = :partition_id
  and category_id = (select category_id from holdfast_category where category = :category)
  and generation = :generation and state in ('granted', 'revoking') and :milliseconds > 0;

-- name: wait_for_share
select allocation.position_id
from holdfast_share_latch as latch
straight_join holdfast_allocation as allocation force index (primary)
    on allocation.consumer = latch.consumer and allocation.partition_id = latch.partition_id
    and allocation.category_id = (select category_id from holdfast_category where category = :category)
where latch.consumer = :consumer and latch.category = :category and latch.partition_id = :partition_id
  and allocation.generation = :generation and allocation.state in ('granted', 'revoking')
for update;

-- name: add_consumer
-- Adds nothing if the consumer exists. If another transaction is adding it, this fails, and the verb is repeated.
insert into holdfast_consumer (consumer, category, stream)
select :consumer, :category, :stream from holdfast_meta
where not exists (select 1 from holdfast_consumer where consumer = :consumer);

-- name: lock_shares_of_consumer
-- Waits for transactions of the owners.
select {share_columns}
from (
    select share.consumer, category.category, share.category_id, share.partition_id
    from holdfast_allocation as share
    straight_join holdfast_category as category on category.category_id = share.category_id
    where share.consumer = :consumer order by share.category_id, share.partition_id limit 1000000
) as given
{latch_and_share}
for update;

-- name: parked_among
-- Which of these streams have parked events other than those at `handled`.
select distinct stream from holdfast_parked
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and stream in (:streams)
  and position_id not in (select position_id from json_table('[:handled]', '$[*]' columns (position_id bigint path '$')) as listed
                          where position_id is not null);

-- name: retrying_at
-- Those of these positions that have a parked event to be retried.
select position_id, stream from holdfast_parked force index (primary)
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and retrying
  and position_id in (:positions);

-- name: retrying_among
-- Those of these streams whose last parked event is to be retried.
select latest.stream
from (
    select stream, max(position_id) as position_id from holdfast_parked
    where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and stream in (:streams)
    group by stream limit 1000000
) as latest
straight_join holdfast_parked as parked force index (primary)
    on parked.consumer = :consumer and parked.category_id = :category_id and parked.partition_id = :partition_id
    and parked.position_id = latest.position_id
where parked.retrying;

-- name: list_retries
-- The first parked events that are to be handled again.
select event.event_id, category.category, event.stream, event.event_name, event.version, event.partition_id,
       event.position_id, event.payload, event.headers, event.recorded_at, parked.attempts
from (
    select event_id, attempts, position_id, category_id from holdfast_parked force index (by_retry)
    where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and retrying = 1
    order by position_id limit :limit
) as parked
straight_join holdfast_event as event on event.event_id = parked.event_id
straight_join holdfast_category as category on category.category_id = parked.category_id
order by parked.position_id;

-- name: list_kept_retries
-- The same of those that another system keeps. Written as an equation, so that the index serves: with few rows to
-- return, MySQL prefers the order of the primary key, and reads all of the partition's.
select attempts, event_text from holdfast_parked force index (by_retry)
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and retrying = 1
  and event_text is not null
order by position_id limit :limit;

-- name: list_parked
select category.category, parked.partition_id, parked.position_id, parked.event_id, parked.stream, parked.failure,
       parked.attempts, parked.retrying, parked.parked_at
from holdfast_parked as parked
straight_join holdfast_category as category on category.category_id = parked.category_id
where parked.consumer = :consumer
  and (category.category, parked.partition_id, parked.position_id) > (:after_category, :after_partition, :after)
order by category.category, parked.partition_id, parked.position_id limit :limit;

-- name: held_by_live_node
select 1 as held
from holdfast_allocation as allocation
straight_join holdfast_node as node on node.node_id = allocation.owner and node.incarnation = allocation.incarnation
straight_join holdfast_node_heartbeat as heartbeat on heartbeat.node_id = node.node_id
where allocation.consumer = :consumer and {now} - heartbeat.heartbeat_at <= heartbeat.ttl limit 1;
