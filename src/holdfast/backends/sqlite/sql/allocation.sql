-- Nodes, leadership and shares.
--
-- Every transaction that writes holds the write lock of the file, so `lock_`, `hold_` and `stop_` only read.

-- name: lock_node
select incarnation from holdfast_node where node_id = :node_id;

-- name: put_node
insert into holdfast_node (node_id, incarnation, host, pid, members, ttl, joined_at, beat_at)
values (:node_id, :incarnation, :host, :pid, :members, :ttl, :now, :now)
on conflict (node_id) do update
set incarnation = excluded.incarnation, host = excluded.host, pid = excluded.pid, members = excluded.members,
    draining = 0, ttl = excluded.ttl, joined_at = excluded.joined_at, beat_at = excluded.beat_at;

-- name: node_heartbeat
update holdfast_node set beat_at = :now, ttl = :ttl where node_id = :node_id and incarnation = :incarnation;

-- name: find_node
select node_id from holdfast_node where node_id = :node_id and incarnation = :incarnation;

-- name: owned_shares
select consumer, category, partition_id, generation, state, deadline_at - :now as drain_left
from holdfast_allocation join holdfast_category using (category_id)
where owner = :node_id and incarnation = :incarnation
order by consumer, category, partition_id;

-- name: lock_shares_of_node
select consumer, category, category_id, partition_id, state, generation, owner, incarnation, target, deadline_at,
    losses, trying
from holdfast_allocation join holdfast_category using (category_id)
where owner = :node_id
order by consumer, category_id, partition_id;

-- name: drain_node
update holdfast_node set draining = 1 where node_id = :node_id and incarnation = :incarnation;

-- name: remove_node
delete from holdfast_node where node_id = :node_id and incarnation = :incarnation;

-- name: list_nodes
select node_id, incarnation, host, pid, draining, :now - beat_at as silent, ttl, :now - joined_at as joined, members,
    (select count(*) from holdfast_allocation as share
        where share.owner = holdfast_node.node_id and share.incarnation = holdfast_node.incarnation) as shares
from holdfast_node order by node_id;

-- name: forget_silent_nodes
delete from holdfast_node where beat_at < :now - :span and not exists (
    select 1 from holdfast_allocation where owner = node_id);

-- name: find_leadership
select epoch, node_id, incarnation, until_at, until_at - :now as lease_left from holdfast_leadership;

-- name: write_leadership
-- Only if the row is unchanged since it was read.
update holdfast_leadership
set epoch = :epoch, node_id = :node_id, incarnation = :incarnation, until_at = :now + :lease
where epoch = :seen_epoch and until_at = :seen_until;

-- name: hold_leadership
select epoch from holdfast_leadership
where epoch = :epoch and node_id = :node_id and incarnation = :incarnation;

-- name: resign_leadership
update holdfast_leadership set node_id = null, incarnation = null, until_at = 0
where epoch = :epoch and node_id = :node_id and incarnation = :incarnation;

-- name: list_shares
select consumer, category, partition_id, state, generation, owner, incarnation, target,
    coalesce(deadline_at < :now, 0) as overdue
from holdfast_allocation join holdfast_category using (category_id)
order by consumer, category, partition_id;

-- name: paused_consumers
select consumer from holdfast_consumer where paused;

-- name: missing_shares
-- Partitions in which a consumer of their category, or of the log, has no share yet.
select consumer.consumer, category.category_id, head.partition_id, consumer.stream, consumer.generation,
    category.partitions
from holdfast_consumer as consumer
    join holdfast_category as category on consumer.category is null or consumer.category = category.category
    join holdfast_head as head on head.category_id = category.category_id
where not consumer.forgotten and not exists (
    select 1 from holdfast_allocation as share where share.consumer = consumer.consumer
        and share.category_id = head.category_id and share.partition_id = head.partition_id)
order by consumer.consumer, category.category_id, head.partition_id;

-- name: add_share
insert into holdfast_allocation (consumer, category_id, partition_id, generation, position_id, since_at)
values (:consumer, :category_id, :partition_id, :generation, :position_id, :now)
on conflict do nothing;

-- name: hold_consumers
select consumer, paused from holdfast_consumer where consumer in (select value from json_each(:consumers));

-- name: hold_all_consumers
select consumer from holdfast_consumer;

-- name: owners_of_shares
select allocation.owner
from json_each(:consumers) as consumer
    join json_each(:categories) as category on category.key = consumer.key
    join json_each(:partition_ids) as place on place.key = consumer.key
    join holdfast_category as of_category on of_category.category = category.value
    join holdfast_allocation as allocation on allocation.consumer = consumer.value
        and allocation.category_id = of_category.category_id and allocation.partition_id = place.value
where allocation.owner is not null;

-- name: hold_nodes
select node_id, incarnation, draining, beat_at as heartbeat_at, ttl from holdfast_node
where node_id in (select value from json_each(:node_ids));

-- name: stop_nodes
select node_id, incarnation, draining, beat_at as heartbeat_at, ttl from holdfast_node
where node_id in (select value from json_each(:node_ids));

-- name: lock_shares
select allocation.consumer, of_category.category, allocation.category_id, allocation.partition_id, allocation.state,
    allocation.generation, allocation.owner, allocation.incarnation, allocation.target, allocation.deadline_at,
    allocation.losses, allocation.trying
from json_each(:consumers) as consumer
    join json_each(:categories) as category on category.key = consumer.key
    join json_each(:partition_ids) as place on place.key = consumer.key
    join holdfast_category as of_category on of_category.category = category.value
    join holdfast_allocation as allocation on allocation.consumer = consumer.value
        and allocation.category_id = of_category.category_id and allocation.partition_id = place.value;

-- name: lock_shares_to_seize
select allocation.consumer, of_category.category, allocation.category_id, allocation.partition_id, allocation.state,
    allocation.generation, allocation.owner, allocation.incarnation, allocation.target, allocation.deadline_at,
    allocation.losses, allocation.trying
from json_each(:consumers) as consumer
    join json_each(:categories) as category on category.key = consumer.key
    join json_each(:partition_ids) as place on place.key = consumer.key
    join holdfast_category as of_category on of_category.category = category.value
    join holdfast_allocation as allocation on allocation.consumer = consumer.value
        and allocation.category_id = of_category.category_id and allocation.partition_id = place.value;

-- name: store_clock
select :now as now;

-- name: write_share
update holdfast_allocation
set state = :state, generation = :generation, owner = :owner, incarnation = :incarnation, target = :target,
    deadline_at = :deadline_at, losses = :losses, trying = :trying, since_at = :now
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id;

-- name: add_transition
insert into holdfast_transition
    (consumer, category_id, partition_id, epoch, generation, old_state, new_state, node_id, happened_at)
values (:consumer, :category_id, :partition_id, :epoch, :generation, :old_state, :new_state, :node_id, :now);

-- name: trim_transitions
-- Only if one of the last `logged` ids is a multiple of `every`.
delete from holdfast_transition
where (select max(transition_id) from holdfast_transition) % :every < :logged and transition_id <= (
    select transition_id from holdfast_transition order by transition_id desc limit 1 offset :kept
);

-- name: list_transitions
select consumer, category, partition_id, epoch, generation, old_state, new_state, node_id, happened_at
from holdfast_transition join holdfast_category using (category_id)
order by transition_id desc limit :limit;
