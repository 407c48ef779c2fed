-- Nodes, leadership, who owns what.

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

-- name: node_beat
update {schema}.node set beat_at = {now}, ttl = %(ttl)s::bigint
where node_id = %(node_id)s::text and incarnation = %(incarnation)s::text
returning node_id;

-- name: find_node
select node_id from {schema}.node where node_id = %(node_id)s::text and incarnation = %(incarnation)s::text;

-- name: owned
select allocation.consumer, category.category, allocation.partition_id, allocation.generation, allocation.state,
       allocation.deadline_at - {now}
from {schema}.allocation as allocation
join {schema}.category as category on category.category_id = allocation.category_id
where allocation.owner = %(node_id)s::text and allocation.incarnation = %(incarnation)s::text
order by allocation.consumer, category.category, allocation.partition_id;

-- name: lock_shares_of_node
select consumer, category_id, partition_id from {schema}.allocation where owner = %(node_id)s::text
order by consumer, category_id, partition_id for update;

-- name: free_shares_of_node
-- Under the locks of `lock_node` and `lock_shares_of_node`. Whether a loss counts: see `losses_after`.
with instant as materialized (select {now} as now),
old as materialized (
    select consumer, category_id, partition_id, state, generation, owner from {schema}.allocation
    where owner = %(node_id)s::text and (%(incarnation)s::text is null or incarnation = %(incarnation)s::text)
),
freed as (
    update {schema}.allocation
    set state = 'free', generation = generation + 1, owner = null, incarnation = null,
        target = coalesce(%(target)s::text, target), deadline_at = null, since_at = instant.now,
        losses = losses + case when losses < 3 or trying then %(lost)s::integer else 0 end
    from instant
    where owner = %(node_id)s::text and (%(incarnation)s::text is null or incarnation = %(incarnation)s::text)
)
insert into {schema}.transition (
    consumer, category_id, partition_id, epoch, generation, old_state, new_state, node_id, happened_at
)
select consumer, category_id, partition_id, 0, generation + 1, state, 'free', owner, instant.now
from old cross join instant
order by consumer, category_id, partition_id
returning transition_id;

-- name: lock_share_to_release
select category_id, state, owner from {schema}.allocation
where consumer = %(consumer)s::text and partition_id = %(partition_id)s::integer
  and category_id = (select category_id from {schema}.category where category = %(category)s::text)
  and generation = %(generation)s::bigint and state in ('granted', 'revoking')
for no key update;

-- name: release_share
update {schema}.allocation
set state = 'free', owner = null, incarnation = null, deadline_at = null, since_at = {now}
where consumer = %(consumer)s::text and category_id = %(category_id)s::integer
  and partition_id = %(partition_id)s::integer;

-- name: drain_node
update {schema}.node set draining = true
where node_id = %(node_id)s::text and incarnation = %(incarnation)s::text;

-- name: remove_node
delete from {schema}.node where node_id = %(node_id)s::text and incarnation = %(incarnation)s::text returning node_id;

-- name: list_nodes
select node.node_id, node.incarnation, node.host, node.pid, node.draining, instant.now - node.beat_at, node.ttl,
       instant.now - node.joined_at, node.members,
       (select count(*) from {schema}.allocation as share
        where share.owner = node.node_id and share.incarnation = node.incarnation)
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

-- name: take_leadership
-- The leader extends; another node takes it when the lease is over or was given up, or when it is so long that the clock
-- must have been set back. A leader that allots holds the row until the end of its transaction: this waits for it, or
-- comes first. It waits for a second: a frozen leader is ended by those who wait no longer.
with bounded as materialized (select set_config('lock_timeout', '1s', true))
update {schema}.leadership
set epoch = epoch + case when node_id = %(node_id)s::text and incarnation = %(incarnation)s::text then 0 else 1 end,
    node_id = %(node_id)s::text, incarnation = %(incarnation)s::text, until_at = {now} + %(lease)s::bigint
where exists (select 1 from bounded) and (
    (node_id = %(node_id)s::text and incarnation = %(incarnation)s::text) or node_id is null or until_at < {now}
    or until_at > {now} + 2 * %(lease)s::bigint
)
returning epoch;

-- name: hold_leadership
select epoch from {schema}.leadership
where epoch = %(epoch)s::bigint and node_id = %(node_id)s::text and incarnation = %(incarnation)s::text
for share;

-- name: resign
update {schema}.leadership set node_id = null, incarnation = null, until_at = 0
where epoch = %(epoch)s::bigint and node_id = %(node_id)s::text and incarnation = %(incarnation)s::text
returning epoch;

-- name: leader
select epoch, node_id, incarnation, until_at - {now} from {schema}.leadership where node_id is not null;

-- name: list_allocations
select allocation.consumer, category.category, allocation.partition_id, allocation.state, allocation.generation,
       allocation.owner, allocation.incarnation, allocation.target,
       coalesce(allocation.deadline_at < instant.now, false)
from {schema}.allocation as allocation
join {schema}.category as category on category.category_id = allocation.category_id
cross join (select {now} as now) as instant
order by allocation.consumer, category.category, allocation.partition_id;

-- name: paused_consumers
select consumer from {schema}.consumer where paused;

-- name: lacking_shares
-- Partitions of which a consumer of their category, or of the log, has no share yet.
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

-- name: hold_consumers
-- Nobody can pause, reset or forget one of them meanwhile; null means all.
select consumer, paused from {schema}.consumer
where %(consumers)s::text[] is null or consumer = any(%(consumers)s::text[])
order by consumer for key share;

-- name: owners_of
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
-- Nobody can join anew as one of them, leave or drain meanwhile.
select node_id, incarnation, draining, beat_at, ttl from {schema}.node
where node_id = any(%(node_ids)s::text[]) order by node_id for key share;

-- name: still_nodes
-- Nor can one of these report meanwhile.
select node_id, incarnation, draining, beat_at, ttl from {schema}.node
where node_id = any(%(node_ids)s::text[]) order by node_id for share;

-- name: lock_shares
-- The caller sorts them.
select given.place, allocation.*
from unnest(%(consumers)s::text[], %(categories)s::text[], %(partition_ids)s::integer[]) with ordinality
    as given (consumer, category, partition_id, place)
cross join lateral (
    select category_id, state, generation, owner, incarnation, target, deadline_at, losses, trying
    from {schema}.allocation
    where consumer = given.consumer and partition_id = given.partition_id
      and category_id = (select category_id from {schema}.category where category = given.category) limit 1
    for no key update
) as allocation;

-- name: lock_shares_to_seize
-- The same; waits for transactions of the owners.
select given.place, allocation.*
from unnest(%(consumers)s::text[], %(categories)s::text[], %(partition_ids)s::integer[]) with ordinality
    as given (consumer, category, partition_id, place)
cross join lateral (
    select category_id, state, generation, owner, incarnation, target, deadline_at, losses, trying
    from {schema}.allocation
    where consumer = given.consumer and partition_id = given.partition_id
      and category_id = (select category_id from {schema}.category where category = given.category) limit 1
    for update
) as allocation;

-- name: store_clock
select {now};

-- name: write_shares
update {schema}.allocation as allocation
set state = given.state, generation = given.generation, owner = given.owner, incarnation = given.incarnation,
    target = given.target, deadline_at = given.deadline_at, losses = given.losses,
    trying = given.trying, since_at = {now}
from unnest(
    %(consumers)s::text[], %(category_ids)s::integer[], %(partition_ids)s::integer[], %(states)s::text[],
    %(generations)s::bigint[], %(owners)s::text[], %(incarnations)s::text[], %(targets)s::text[],
    %(deadlines)s::bigint[], %(losses)s::integer[], %(trying)s::boolean[]
) as given (
    consumer, category_id, partition_id, state, generation, owner, incarnation, target, deadline_at, losses, trying
)
where allocation.consumer = given.consumer and allocation.category_id = given.category_id
  and allocation.partition_id = given.partition_id;

-- name: add_transitions
insert into {schema}.transition (
    consumer, category_id, partition_id, epoch, generation, old_state, new_state, node_id, happened_at
)
select given.consumer, given.category_id, given.partition_id, %(epoch)s::bigint, given.generation, given.old_state,
       given.new_state, given.node_id, {now}
from unnest(
    %(consumers)s::text[], %(category_ids)s::integer[], %(partition_ids)s::integer[], %(generations)s::bigint[],
    %(old_states)s::text[], %(new_states)s::text[], %(node_ids)s::text[]
) with ordinality
as given (consumer, category_id, partition_id, generation, old_state, new_state, node_id, place)
order by given.place
returning transition_id;

-- name: forget_transitions
delete from {schema}.transition where transition_id <= (
    select transition_id from {schema}.transition order by transition_id desc offset 1000 limit 1
);

-- name: list_transitions
select transition.consumer, category.category, transition.partition_id, transition.epoch, transition.generation,
       transition.old_state, transition.new_state, transition.node_id, transition.happened_at
from (select * from {schema}.transition order by transition_id desc limit %(limit)s::bigint) as transition
join {schema}.category as category on category.category_id = transition.category_id
order by transition.transition_id desc;
