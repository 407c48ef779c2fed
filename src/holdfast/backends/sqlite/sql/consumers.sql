-- Consumers: positions, parked events, and the statements behind operators' commands.

-- name: find_consumer
select category, stream, paused, forgotten, generation from holdfast_consumer where consumer = :consumer;

-- name: lock_consumer
select category, stream, paused, forgotten, generation from holdfast_consumer where consumer = :consumer;

-- name: add_consumer
insert into holdfast_consumer (consumer, category, stream) values (:consumer, :category, :stream)
on conflict do nothing;

-- name: revive_consumer
update holdfast_consumer set category = :category, stream = :stream, paused = 0, forgotten = 0
where consumer = :consumer;

-- name: find_granted
-- The share under a live grant; no row if the grant is stale.
select category_id, position_id, state, replay_until, losses, (
    select stream from holdfast_consumer where consumer = allocation.consumer) as stream
from holdfast_allocation as allocation
where consumer = :consumer and category_id = (select category_id from holdfast_category where category = :category)
    and partition_id = :partition_id and generation = :generation and state in ('granted', 'revoking');

-- name: lock_granted
select category_id, position_id, state, replay_until, losses, (
    select stream from holdfast_consumer where consumer = allocation.consumer) as stream
from holdfast_allocation as allocation
where consumer = :consumer and category_id = (select category_id from holdfast_category where category = :category)
    and partition_id = :partition_id and generation = :generation and state in ('granted', 'revoking');

-- name: lock_granted_share
select consumer, category, category_id, partition_id, state, generation, owner, incarnation, target, deadline_at,
    losses, trying
from holdfast_allocation join holdfast_category using (category_id)
where consumer = :consumer and category = :category and partition_id = :partition_id and generation = :generation
    and state in ('granted', 'revoking');

-- name: wait_for_share
select position_id from holdfast_allocation
where consumer = :consumer and category_id = (select category_id from holdfast_category where category = :category)
    and partition_id = :partition_id and generation = :generation and state in ('granted', 'revoking');

-- name: commit_position
update holdfast_allocation
set position_id = :position, losses = iif(:clears, 0, losses), trying = :begins_trial
where consumer = :consumer and category_id = (select category_id from holdfast_category where category = :category)
    and partition_id = :partition_id and generation = :generation and position_id = :after
    and state in ('granted', 'revoking');

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

-- name: retrying_at
-- The positions, among these, with a parked event that is being retried.
select position_id, stream from holdfast_parked
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and retrying
    and position_id in (select value from json_each(:positions));

-- name: unpark
delete from holdfast_parked
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and position_id = :position;

-- name: park_again
update holdfast_parked set failure = :failure, attempts = attempts + :attempts
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and position_id = :position;

-- name: retry_no_more
update holdfast_parked set retrying = 0
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and stream = :stream
    and position_id >= :position;

-- name: park_by_position
-- A repeat finds the row already written; an event that was trimmed meanwhile is not parked.
insert into holdfast_parked
    (consumer, category_id, partition_id, position_id, event_id, stream, failure, attempts, retrying, parked_at)
select :consumer, :category_id, :partition_id, :position, event_id, :stream, :failure, :attempts, :retrying, :now
from holdfast_event
where category_id = :category_id and partition_id = :partition_id and position_id = :position
on conflict do nothing;

-- name: park_by_version
-- For a consumer of one stream, whose positions are versions.
insert into holdfast_parked
    (consumer, category_id, partition_id, position_id, event_id, stream, failure, attempts, retrying, parked_at)
select :consumer, :category_id, :partition_id, :position, event_id, :stream, :failure, :attempts, :retrying, :now
from holdfast_event
where category_id = :category_id and stream = :stream and version = :position
on conflict do nothing;

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

-- name: lock_shares_of_consumer
select consumer, category, category_id, partition_id, state, generation, owner, incarnation, target, deadline_at,
    losses, trying
from holdfast_allocation join holdfast_category using (category_id)
where consumer = :consumer
order by consumer, category_id, partition_id;

-- name: hold_shares_of_consumer
select category_id, partition_id from holdfast_allocation where consumer = :consumer;

-- name: hold_shares_of_category
select consumer, partition_id from holdfast_allocation
where category_id = (select category_id from holdfast_category where category = :category);

-- name: retry_parked
update holdfast_parked set retrying = 1 where consumer = :consumer and (:stream is null or stream = :stream);

-- name: drop_parked
delete from holdfast_parked
where consumer = :consumer and (:stream is null or stream = :stream) and (:event_id is null or event_id = :event_id);

-- name: pause_consumer
update holdfast_consumer set paused = 1 where consumer = :consumer and not paused;

-- name: resume_consumer
update holdfast_consumer set paused = 0 where consumer = :consumer and paused;

-- name: list_consumers
-- Costs a few index lookups per share.
select consumer.consumer, consumer.category, consumer.stream, consumer.paused, category.category as of_category,
    allocation.partition_id, allocation.state, allocation.generation, allocation.owner, allocation.target,
    allocation.position_id,
    case when consumer.stream is null then (
        select position_id from holdfast_head
        where category_id = allocation.category_id and partition_id = allocation.partition_id
    ) else coalesce(
        (select max(version) from holdfast_event
            where category_id = allocation.category_id and stream = consumer.stream),
        (select version from holdfast_trimmed_stream
            where category_id = allocation.category_id and stream = consumer.stream),
        0
    ) end as head,
    :now - case when consumer.stream is null then (
        select recorded_at from holdfast_event
        where category_id = allocation.category_id and partition_id = allocation.partition_id
            and position_id > allocation.position_id order by position_id limit 1
    ) else (
        select recorded_at from holdfast_event
        where category_id = allocation.category_id and stream = consumer.stream
            and version > allocation.position_id order by version limit 1
    ) end as behind,
    (select count(*) from holdfast_parked as parked where parked.consumer = allocation.consumer
        and parked.category_id = allocation.category_id and parked.partition_id = allocation.partition_id) as parked,
    :now - allocation.since_at as since, allocation.losses
from holdfast_consumer as consumer
    left join holdfast_allocation as allocation on allocation.consumer = consumer.consumer
    left join holdfast_category as category on category.category_id = allocation.category_id
where not consumer.forgotten
order by consumer.consumer, category.category, allocation.partition_id;

-- name: held_by_live_node
select 1 as held from holdfast_allocation join holdfast_node
    on node_id = owner and holdfast_node.incarnation = holdfast_allocation.incarnation
where consumer = :consumer and :now - beat_at <= ttl limit 1;

-- name: reset_share
update holdfast_allocation
set state = 'free', generation = generation + 1, owner = null, incarnation = null, target = null, deadline_at = null,
    position_id = :position_id, replay_until = :head, losses = 0, since_at = :now
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id;

-- name: drop_parked_past
delete from holdfast_parked
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id
    and position_id > :position_id;

-- name: forget_shares
delete from holdfast_allocation where consumer = :consumer;

-- name: forget_parked
delete from holdfast_parked where consumer = :consumer;

-- name: forget_consumer
update holdfast_consumer set forgotten = 1, paused = 0, generation = :generation where consumer = :consumer;
