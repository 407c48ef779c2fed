-- Nodes, leadership and shares.
--
-- `lock_`, `hold_` and `stop_` lock rows until the end of the transaction, in this order: leadership, consumers, nodes,
-- shares.

-- name: lock_node
select incarnation from {schema}.node where node_id = %(node_id)s::text for update;

-- name: put_node
insert into {schema}.node (node_id, incarnation, host, pid, members, ttl, joined_at, beat_at)
select %(node_id)s::text, %(incarnation)s::text, %(host)s::text, %(pid)s::integer, %(members)s::text, %(ttl)s::bigint,
       now, now
from (select {now} as now) as instant
on conflict (node_id) do update
set incarnation = excluded.incarnation, host = excluded.host, pid = excluded.pid, members = excluded.members,
    draining = false, ttl = excluded.ttl, joined_at = excluded.joined_at, beat_at = excluded.beat_at;

-- name: node_heartbeat
update {schema}.node set beat_at = {now}, ttl = %(ttl)s::bigint
where node_id = %(node_id)s::text and incarnation = %(incarnation)s::text;

-- name: find_node
select node_id from {schema}.node where node_id = %(node_id)s::text and incarnation = %(incarnation)s::text;

-- name: owned_shares
select allocation.consumer, category.category, allocation.partition_id, allocation.generation, allocation.state,
       allocation.deadline_at - {now} as drain_left
from {schema}.allocation as allocation
join {schema}.category as category on category.category_id = allocation.category_id
where allocation.owner = %(node_id)s::text and allocation.incarnation = %(incarnation)s::text
order by allocation.consumer, category.category, allocation.partition_id;

-- name: lock_shares_of_node
select consumer, (select category from {schema}.category where category_id = allocation.category_id) as category,
       category_id, partition_id, state, generation, owner, incarnation, target, deadline_at, losses, trying
from {schema}.allocation as allocation where owner = %(node_id)s::text
order by consumer, category_id, partition_id for update;

-- name: drain_node
update {schema}.node set draining = true
where node_id = %(node_id)s::text and incarnation = %(incarnation)s::text;

-- name: remove_node
delete from {schema}.node where node_id = %(node_id)s::text and incarnation = %(incarnation)s::text;

-- name: list_nodes
select node.node_id, node.incarnation, node.host, node.pid, node.draining, instant.now - node.beat_at as silent,
       node.ttl, instant.now - node.joined_at as joined, node.members,
       (select count(*) from {schema}.allocation as share
        where share.owner = node.node_id and share.incarnation = node.incarnation) as shares
from {schema}.node as node cross join (select {now} as now) as instant
order by node.node_id;

-- name: forget_silent_nodes
delete from {schema}.node
where node_id = any(array(
    select node_id from {schema}.node as node
    where node.beat_at < {now} - %(span)s::bigint
      and not exists (select 1 from {schema}.allocation as share where share.owner = node.node_id)
    for update skip locked
));

-- name: find_leadership
select epoch, node_id, incarnation, until_at, until_at - {now} as lease_left from {schema}.leadership;

-- name: write_leadership
-- Only if the row is unchanged since it was read. A leader that moves shares locks the row until the end of its
-- transaction: this either waits for that, or is first. The wait is limited to a second: the sessions of a frozen
-- leader are ended by `end_stuck_sessions`.
with bounded as materialized (select set_config('lock_timeout', '1s', true))
update {schema}.leadership
set epoch = %(epoch)s::bigint, node_id = %(node_id)s::text, incarnation = %(incarnation)s::text,
    until_at = {now} + %(lease)s::bigint
where exists (select 1 from bounded) and epoch = %(seen_epoch)s::bigint and until_at = %(seen_until)s::bigint;

-- name: hold_leadership
select epoch from {schema}.leadership
where epoch = %(epoch)s::bigint and node_id = %(node_id)s::text and incarnation = %(incarnation)s::text
for share;

-- name: resign_leadership
update {schema}.leadership set node_id = null, incarnation = null, until_at = 0
where epoch = %(epoch)s::bigint and node_id = %(node_id)s::text and incarnation = %(incarnation)s::text;

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
       category.partitions
from {schema}.consumer as consumer
join {schema}.category as category on consumer.category is null or consumer.category = category.category
join {schema}.head as head on head.category_id = category.category_id
where not consumer.forgotten and not exists (
    select 1 from {schema}.allocation as share where share.consumer = consumer.consumer
        and share.category_id = head.category_id and share.partition_id = head.partition_id
)
order by consumer.consumer, category.category_id, head.partition_id;

-- name: add_share
insert into {schema}.allocation (consumer, category_id, partition_id, generation, position_id, since_at)
select given.consumer, given.category_id, given.partition_id, given.generation, given.position_id, {now}
from unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(generation)s::bigint[],
    %(position_id)s::bigint[]
) as given (consumer, category_id, partition_id, generation, position_id)
on conflict (consumer, category_id, partition_id) do nothing;

-- name: hold_consumers
-- Until the end of the transaction, none of them can be paused, reset or forgotten.
select consumer, paused from {schema}.consumer where consumer = any(%(consumers)s::text[])
order by consumer for key share;

-- name: hold_all_consumers
select consumer from {schema}.consumer order by consumer for key share;

-- name: owners_of_shares
select allocation.owner
from unnest(%(consumers)s::text[], %(categories)s::text[], %(partition_ids)s::integer[])
    as given (consumer, category, partition_id)
cross join lateral (
    select owner from {schema}.allocation
    where consumer = given.consumer and partition_id = given.partition_id
      and category_id = (select category_id from {schema}.category where category = given.category) limit 1
) as allocation
where allocation.owner is not null;

-- name: hold_nodes
-- Until the end of the transaction, none of them can join under a new incarnation, leave or drain.
select node_id, incarnation, draining, beat_at as heartbeat_at, ttl from {schema}.node
where node_id = any(%(node_ids)s::text[]) order by node_id for key share;

-- name: stop_nodes
-- As `hold_nodes`; nor can one of these send a heartbeat.
select node_id, incarnation, draining, beat_at as heartbeat_at, ttl from {schema}.node
where node_id = any(%(node_ids)s::text[]) order by node_id for share;

-- name: lock_shares
-- The caller sorts the shares.
select given.consumer, given.category, allocation.category_id, given.partition_id, allocation.state,
       allocation.generation, allocation.owner, allocation.incarnation, allocation.target, allocation.deadline_at,
       allocation.losses, allocation.trying
from unnest(%(consumers)s::text[], %(categories)s::text[], %(partition_ids)s::integer[])
    as given (consumer, category, partition_id)
cross join lateral (
    select category_id, state, generation, owner, incarnation, target, deadline_at, losses, trying
    from {schema}.allocation
    where consumer = given.consumer and partition_id = given.partition_id
      and category_id = (select category_id from {schema}.category where category = given.category) limit 1
    for no key update
) as allocation;

-- name: lock_shares_to_seize
-- As `lock_shares`, but waits for transactions of the owners.
select given.consumer, given.category, allocation.category_id, given.partition_id, allocation.state,
       allocation.generation, allocation.owner, allocation.incarnation, allocation.target, allocation.deadline_at,
       allocation.losses, allocation.trying
from unnest(%(consumers)s::text[], %(categories)s::text[], %(partition_ids)s::integer[])
    as given (consumer, category, partition_id)
cross join lateral (
    select category_id, state, generation, owner, incarnation, target, deadline_at, losses, trying
    from {schema}.allocation
    where consumer = given.consumer and partition_id = given.partition_id
      and category_id = (select category_id from {schema}.category where category = given.category) limit 1
    for update
) as allocation;

-- name: store_clock
select {now} as now;

-- name: write_share
update {schema}.allocation as allocation
set state = given.state, generation = given.generation, owner = given.owner, incarnation = given.incarnation,
    target = given.target, deadline_at = given.deadline_at, losses = given.losses,
    trying = given.trying, since_at = {now}
from unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(state)s::text[],
    %(generation)s::bigint[], %(owner)s::text[], %(incarnation)s::text[], %(target)s::text[],
    %(deadline_at)s::bigint[], %(losses)s::integer[], %(trying)s::boolean[]
) as given (
    consumer, category_id, partition_id, state, generation, owner, incarnation, target, deadline_at, losses, trying
)
where allocation.consumer = given.consumer and allocation.category_id = given.category_id
  and allocation.partition_id = given.partition_id;

-- name: add_transition
insert into {schema}.transition (
    consumer, category_id, partition_id, epoch, generation, old_state, new_state, node_id, happened_at
)
select given.consumer, given.category_id, given.partition_id, given.epoch, given.generation, given.old_state,
       given.new_state, given.node_id, {now}
from unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(epoch)s::bigint[],
    %(generation)s::bigint[], %(old_state)s::text[], %(new_state)s::text[], %(node_id)s::text[]
) with ordinality
as given (consumer, category_id, partition_id, epoch, generation, old_state, new_state, node_id, place)
order by given.place;

-- name: trim_transitions
-- Only if one of the last `logged` ids is a multiple of `every`.
delete from {schema}.transition
where (select mod(max(transition_id), %(every)s::bigint) from {schema}.transition) < %(logged)s::bigint
  and transition_id <= (
    select transition_id from {schema}.transition order by transition_id desc offset %(kept)s::bigint limit 1
);

-- name: list_transitions
select transition.consumer, category.category, transition.partition_id, transition.epoch, transition.generation,
       transition.old_state, transition.new_state, transition.node_id, transition.happened_at
from (select * from {schema}.transition order by transition_id desc limit %(limit)s::bigint) as transition
join {schema}.category as category on category.category_id = transition.category_id
order by transition.transition_id desc;
