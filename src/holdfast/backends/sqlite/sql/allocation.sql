-- Nodes, leadership, who owns what.

-- name: find_node
select incarnation, draining, beat_at, ttl from holdfast_node where node_id = :node_id;

-- name: put_node
insert into holdfast_node (node_id, incarnation, host, pid, members, ttl, joined_at, beat_at)
values (:node_id, :incarnation, :host, :pid, :members, :ttl, :now, :now)
on conflict (node_id) do update
set incarnation = excluded.incarnation, host = excluded.host, pid = excluded.pid, members = excluded.members,
    draining = 0, ttl = excluded.ttl, joined_at = excluded.joined_at, beat_at = excluded.beat_at;

-- name: node_beat
update holdfast_node set beat_at = :now, ttl = :ttl where node_id = :node_id and incarnation = :incarnation;

-- name: owned
select consumer, category, partition_id, generation, state, deadline_at
from holdfast_allocation join holdfast_category using (category_id)
where owner = :node_id and incarnation = :incarnation
order by consumer, category, partition_id;

-- name: shares_of_node
select consumer, category_id, partition_id, state, generation, owner
from holdfast_allocation where owner = :node_id and (:incarnation is null or incarnation = :incarnation)
order by consumer, category_id, partition_id;

-- name: drain_node
update holdfast_node set draining = 1 where node_id = :node_id and incarnation = :incarnation;

-- name: remove_node
delete from holdfast_node where node_id = :node_id and incarnation = :incarnation;

-- name: leadership
select epoch, node_id, incarnation, until_at from holdfast_leadership where only_row = 1;

-- name: set_leadership
update holdfast_leadership
set epoch = :epoch, node_id = :node_id, incarnation = :incarnation, until_at = :until_at where only_row = 1;

-- name: list_nodes
select node_id, incarnation, host, pid, draining, beat_at, ttl, joined_at, members,
    (select count(*) from holdfast_allocation as share
        where share.owner = holdfast_node.node_id and share.incarnation = holdfast_node.incarnation)
from holdfast_node order by node_id;

-- name: forget_silent_nodes
delete from holdfast_node where beat_at < :before and not exists (
    select 1 from holdfast_allocation where owner = node_id);

-- name: list_allocations
select consumer, category, partition_id, state, generation, owner, incarnation, target, deadline_at
from holdfast_allocation join holdfast_category using (category_id)
order by consumer, category, partition_id;

-- name: paused_consumers
select consumer from holdfast_consumer where paused;

-- name: lacking_shares
-- Partitions of which a consumer of their category, or of the log, has no share yet.
select consumer.consumer, category.category_id, head.partition_id, consumer.stream, consumer.generation,
    category.partitions
from holdfast_consumer as consumer
    join holdfast_category as category on consumer.category is null or consumer.category = category.category
    join holdfast_head as head on head.category_id = category.category_id
where not consumer.forgotten and not exists (
    select 1 from holdfast_allocation as share where share.consumer = consumer.consumer
        and share.category_id = head.category_id and share.partition_id = head.partition_id);

-- name: share_for_move
select category_id, state, allocation.generation, owner, incarnation, deadline_at, paused
from holdfast_allocation as allocation
    join holdfast_category as category using (category_id)
    join holdfast_consumer as consumer using (consumer)
where consumer = :consumer and category.category = :category and partition_id = :partition_id;

-- name: grant_share
update holdfast_allocation
set state = 'granted', generation = generation + 1, owner = :owner, incarnation = :incarnation, target = null,
    deadline_at = null, trying = 0, since_at = :now
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id;

-- name: revoke_share
update holdfast_allocation set state = 'revoking', target = :target, deadline_at = :deadline_at, since_at = :now
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id;

-- name: free_share
-- Whether a loss counts: see `losses_after`.
update holdfast_allocation
set state = 'free', generation = generation + :grows, owner = null, incarnation = null,
    target = coalesce(:target, target), deadline_at = null,
    losses = losses + iif(:lost and (losses < 3 or trying), 1, 0), since_at = :now
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id;

-- name: add_transition
insert into holdfast_transition
    (consumer, category_id, partition_id, epoch, generation, old_state, new_state, node_id, happened_at)
values (:consumer, :category_id, :partition_id, :epoch, :generation, :old_state, :new_state, :node_id, :now);

-- name: forget_transitions
-- The last thousand are kept; ids only grow, so the place to cut is known without a count.
delete from holdfast_transition where transition_id <= (select max(transition_id) from holdfast_transition) - 1000;

-- name: list_transitions
select consumer, category, partition_id, epoch, generation, old_state, new_state, node_id, happened_at
from holdfast_transition join holdfast_category using (category_id)
order by transition_id desc limit :limit;

-- name: owner_of
select owner from holdfast_allocation
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id;
