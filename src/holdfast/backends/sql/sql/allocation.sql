-- Nodes, leadership and shares.
--
-- `lock_`, `hold_` and `stop_` lock rows until the end of the transaction, in this order: leadership, consumers, nodes,
-- shares.

-- name: lock_node
select incarnation from {schema}.node where node_id = :node_id::text for update;

-- name: put_node
insert into {schema}.node (node_id, incarnation, host, pid, members, ttl, joined_at, heartbeat_at)
select :node_id::text, :incarnation::text, :host::text, :pid::integer, :members::text, :ttl::bigint,
       now, now
from (select {now} as now) as instant where true
on conflict (node_id) do update
set incarnation = excluded.incarnation, host = excluded.host, pid = excluded.pid, members = excluded.members,
    draining = false, ttl = excluded.ttl, joined_at = excluded.joined_at, heartbeat_at = excluded.heartbeat_at;

-- name: node_heartbeat
update {schema}.node set heartbeat_at = {now}, ttl = :ttl::bigint
where node_id = :node_id::text and incarnation = :incarnation::text;

-- name: find_node
select node_id from {schema}.node where node_id = :node_id::text and incarnation = :incarnation::text;

-- name: owned_shares
select allocation.consumer, category.category, allocation.partition_id, allocation.generation, allocation.state,
       allocation.deadline_at - {now} as drain_left
from {schema}.allocation as allocation
join {schema}.category as category on category.category_id = allocation.category_id
where allocation.owner = :node_id::text and allocation.incarnation = :incarnation::text
order by allocation.consumer, category.category, allocation.partition_id;

-- name: lock_shares_of_node
select consumer, (select category from {schema}.category where category_id = allocation.category_id) as category,
       category_id, partition_id, state, generation, owner, incarnation, target, deadline_at, losses, on_trial
from {schema}.allocation as allocation where owner = :node_id::text
order by consumer, category_id, partition_id for update;

-- name: drain_node
update {schema}.node set draining = true
where node_id = :node_id::text and incarnation = :incarnation::text;

-- name: remove_node
delete from {schema}.node where node_id = :node_id::text and incarnation = :incarnation::text;

-- name: list_nodes
select node.node_id, node.incarnation, node.host, node.pid, node.draining, instant.now - node.heartbeat_at as silent,
       node.ttl, instant.now - node.joined_at as joined, node.members,
       (select count(*) from {schema}.allocation as share
        where share.owner = node.node_id and share.incarnation = node.incarnation) as shares
from {schema}.node as node cross join (select {now} as now) as instant
order by node.node_id;

-- name: find_leadership
select epoch, node_id, incarnation, until_at, until_at - {now} as lease_left from {schema}.leadership;

-- name: hold_leadership
select epoch from {schema}.leadership
where epoch = :epoch::bigint and node_id = :node_id::text and incarnation = :incarnation::text
for share;

-- name: resign_leadership
update {schema}.leadership set node_id = null, incarnation = null, until_at = 0
where epoch = :epoch::bigint and node_id = :node_id::text and incarnation = :incarnation::text;

-- name: list_shares
select allocation.consumer, category.category, allocation.partition_id, allocation.state, allocation.generation,
       allocation.owner, allocation.incarnation, allocation.target,
       coalesce(allocation.deadline_at < instant.now, false) as overdue
from {schema}.allocation as allocation
join {schema}.category as category on category.category_id = allocation.category_id
cross join (select {now} as now) as instant
order by allocation.consumer, category.category, allocation.partition_id;

-- name: paused_consumers
select consumer from {schema}.consumer where paused;

-- name: missing_shares
-- Partitions in which a consumer of their category, or of the log, has no share yet.
select consumer.consumer, category.category_id, head.partition_id, consumer.stream, consumer.generation,
       category.partitions, head.trimmed
from {schema}.consumer as consumer
join {schema}.category as category on consumer.category is null or consumer.category = category.category
join {schema}.head as head on head.category_id = category.category_id
where not consumer.forgotten and not exists (
    select 1 from {schema}.allocation as share where share.consumer = consumer.consumer
        and share.category_id = head.category_id and share.partition_id = head.partition_id
)
order by consumer.consumer, category.category_id, head.partition_id;

-- name: hold_consumers
-- Until the end of the transaction, none of them can be paused, reset or forgotten.
select consumer, paused from {schema}.consumer where consumer = any(:consumers::text[])
order by consumer for key share;

-- name: hold_all_consumers
select consumer from {schema}.consumer order by consumer for key share;

-- name: hold_nodes
-- Until the end of the transaction, none of them can join under a new incarnation, leave or drain.
select node_id, incarnation, draining, heartbeat_at, ttl from {schema}.node
where node_id = any(:node_ids::text[]) order by node_id for key share;

-- name: stop_nodes
-- As `hold_nodes`; nor can one of these send a heartbeat.
select node_id, incarnation, draining, heartbeat_at, ttl from {schema}.node
where node_id = any(:node_ids::text[]) order by node_id for share;

-- name: store_clock
select {now} as now;

-- name: trim_transitions
-- Only if one of the last `logged` ids is a multiple of `every`.
delete from {schema}.transition
where (select max(transition_id) from {schema}.transition) % :every::bigint < :logged::bigint
  and transition_id <= (
    select transition_id from {schema}.transition order by transition_id desc limit 1 offset :kept::bigint
);

-- name: list_transitions
select transition.consumer, category.category, transition.partition_id, transition.epoch, transition.generation,
       transition.old_state, transition.new_state, transition.node_id, transition.happened_at
from (select * from {schema}.transition order by transition_id desc limit :limit::bigint) as transition
join {schema}.category as category on category.category_id = transition.category_id
order by transition.transition_id desc;

-- name: add_share
insert into {schema}.allocation (consumer, category_id, partition_id, generation, position_id, since_at)
values (:consumer, :category_id, :partition_id, :generation, :position_id, {now})
on conflict do nothing;

-- name: write_share
update {schema}.allocation
set state = :state, generation = :generation, owner = :owner, incarnation = :incarnation, target = :target,
    deadline_at = :deadline_at, losses = :losses, on_trial = :on_trial, since_at = {now}
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id;

-- name: add_transition
insert into {schema}.transition
    (consumer, category_id, partition_id, epoch, generation, old_state, new_state, node_id, happened_at)
values (:consumer, :category_id, :partition_id, :epoch, :generation, :old_state, :new_state, :node_id, {now});
