-- Consumers: their positions, what they have parked, and what people see and do.

-- name: find_consumer
select category, stream, paused, forgotten, generation from holdfast_consumer where consumer = :consumer;

-- name: put_consumer
insert into holdfast_consumer (consumer, category, stream) values (:consumer, :category, :stream)
on conflict (consumer) do update
set category = excluded.category, stream = excluded.stream, paused = 0, forgotten = 0;

-- name: consumer_names
select consumer, category, stream, paused, generation from holdfast_consumer where not forgotten order by consumer;

-- name: categories_of
select category_id, category, partitions from holdfast_category
where :category is null or category = :category order by category;

-- name: add_allocation
insert into holdfast_allocation
    (consumer, category_id, partition_id, generation, position_id, since_at)
values (?, ?, ?, ?, ?, ?)
on conflict do nothing;

-- name: held_share
-- The allocation as its owner sees it; none if the grant is stale.
select position_id, state, replay_until, losses from holdfast_allocation
where consumer = :consumer and category_id = (select category_id from holdfast_category where category = :category)
    and partition_id = :partition_id and generation = :generation and state in ('granted', 'revoking');

-- name: move_position
update holdfast_allocation
set position_id = :position, losses = iif(:clears, 0, losses), trying = :tries
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id;

-- name: parked_streams
-- Which of these streams have parked events. Nothing is parked as a rule, and one look tells so.
select value from json_each(:streams)
where exists (
    select 1 from holdfast_parked
    where consumer = :consumer and category_id = :category_id and partition_id = :partition_id
) and exists (
    select 1 from holdfast_parked
    where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and stream = value
);

-- name: parked_of_stream
-- Whether the last parked event of a stream is to be retried: the next one waits behind it.
select retrying from holdfast_parked
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and stream = :stream
order by position_id desc limit 1;

-- name: retries
select event_id, attempts from holdfast_parked
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and retrying
order by position_id limit :limit;

-- name: park
-- A repeat finds the row there already.
insert into holdfast_parked
    (consumer, category_id, partition_id, position_id, event_id, stream, failure, attempts, retrying, parked_at)
values
    (:consumer, :category_id, :partition_id, :position, :event_id, :stream, :failure, :attempts, :retrying, :now)
on conflict do nothing;

-- name: event_id_at_position
select event_id from holdfast_event
where category_id = :category_id and partition_id = :partition_id and position_id = :position;

-- name: event_id_at_version
select event_id from holdfast_event where category_id = :category_id and stream = :stream and version = :position;

-- name: unpark
delete from holdfast_parked
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and position_id = :position;

-- name: park_again
update holdfast_parked set failure = :failure, attempts = attempts + :attempts
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and position_id = :position
    and retrying
returning stream;

-- name: retry_no_more
update holdfast_parked set retrying = 0
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and stream = :stream
    and position_id >= :position;

-- name: list_parked
select category, partition_id, position_id, event_id, stream, failure, attempts, retrying, parked_at
from holdfast_parked join holdfast_category using (category_id)
where consumer = :consumer and (category, partition_id, position_id) > (:after_category, :after_partition, :after)
order by category, partition_id, position_id limit :limit;

-- name: retry_parked
update holdfast_parked set retrying = 1 where consumer = :consumer and (:stream is null or stream = :stream);

-- name: drop_parked
delete from holdfast_parked
where consumer = :consumer and (:stream is null or stream = :stream) and (:event_id is null or event_id = :event_id);

-- name: drop_parked_past
delete from holdfast_parked
where consumer = ? and category_id = ? and partition_id = ? and position_id > ?;

-- name: pause_consumer
update holdfast_consumer set paused = 1 where consumer = :consumer and not paused;

-- name: resume_consumer
update holdfast_consumer set paused = 0 where consumer = :consumer and paused;

-- name: shares_of
select category_id, category, partition_id, state, generation, owner, target, position_id, losses, since_at,
    (select count(*) from holdfast_parked as parked where parked.consumer = allocation.consumer
        and parked.category_id = allocation.category_id and parked.partition_id = allocation.partition_id)
from holdfast_allocation as allocation join holdfast_category using (category_id)
where consumer = :consumer
order by category, partition_id;

-- name: held_by_the_living
select 1 from holdfast_allocation join holdfast_node
    on node_id = owner and holdfast_node.incarnation = holdfast_allocation.incarnation
where consumer = :consumer and :now - beat_at <= ttl limit 1;

-- name: reset_share
update holdfast_allocation
set state = 'free', generation = generation + 1, owner = null, incarnation = null, target = null, deadline_at = null,
    position_id = ?, replay_until = ?, losses = 0, since_at = ?
where consumer = ? and category_id = ? and partition_id = ?;

-- name: forget_shares
delete from holdfast_allocation where consumer = :consumer;

-- name: forget_parked
delete from holdfast_parked where consumer = :consumer;

-- name: forget_consumer
-- One above the largest, as if each share were taken away: what was planned on its former life holds of no share.
update holdfast_consumer set forgotten = 1, paused = 0, generation = max(generation, (
    select coalesce(max(generation) + 1, 0) from holdfast_allocation where consumer = :consumer))
where consumer = :consumer;

-- name: parked_positions
select position_id from holdfast_parked
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and stream = :stream;

-- name: next_recorded
select recorded_at from holdfast_event
where category_id = :category_id and partition_id = :partition_id and position_id > :after
order by position_id limit 1;

-- name: next_recorded_of_stream
select recorded_at from holdfast_event
where category_id = :category_id and stream = :stream and version > :after
order by version limit 1;
