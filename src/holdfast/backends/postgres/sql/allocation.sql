-- Nodes, leadership and shares.

-- name: forget_silent_nodes
delete from {schema}.node
where node_id = any(array(
    select node_id from {schema}.node as node
    where node.heartbeat_at < {now} - %(span)s::bigint
      and not exists (select 1 from {schema}.allocation as share where share.owner = node.node_id)
    for update skip locked
));

-- name: write_leadership
-- Only if the row is unchanged since it was read. A leader that moves shares locks the row until the end of its
-- transaction: this either waits for that, or is first. The wait is limited to a second: the sessions of a frozen
-- leader are ended by `end_stuck_sessions`.
with bounded as materialized (select set_config('lock_timeout', '1s', true))
update {schema}.leadership
set epoch = %(epoch)s::bigint, node_id = %(node_id)s::text, incarnation = %(incarnation)s::text,
    until_at = {now} + %(lease)s::bigint
where exists (select 1 from bounded) and epoch = %(seen_epoch)s::bigint and until_at = %(seen_until)s::bigint;

-- name: add_share
insert into {schema}.allocation (consumer, category_id, partition_id, generation, position_id, since_at)
select given.consumer, given.category_id, given.partition_id, given.generation, given.position_id, {now}
from unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(generation)s::bigint[],
    %(position_id)s::bigint[]
) as given (consumer, category_id, partition_id, generation, position_id)
on conflict (consumer, category_id, partition_id) do nothing;

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

-- part: given_shares
select given.consumer, given.category, allocation.category_id, given.partition_id, allocation.state,
       allocation.generation, allocation.owner, allocation.incarnation, allocation.target, allocation.deadline_at,
       allocation.losses, allocation.on_trial
from unnest(%(consumers)s::text[], %(categories)s::text[], %(partition_ids)s::integer[])
    as given (consumer, category, partition_id)
cross join lateral (
    select category_id, state, generation, owner, incarnation, target, deadline_at, losses, on_trial
    from {schema}.allocation
    where consumer = given.consumer and partition_id = given.partition_id
      and category_id = (select category_id from {schema}.category where category = given.category) limit 1;

-- name: lock_shares
-- The caller sorts the shares.
{given_shares}
    for no key update
) as allocation;

-- name: lock_shares_to_seize
-- As `lock_shares`, but waits for transactions of the owners.
{given_shares}
    for update
) as allocation;

-- name: write_share
update {schema}.allocation as allocation
set state = given.state, generation = given.generation, owner = given.owner, incarnation = given.incarnation,
    target = given.target, deadline_at = given.deadline_at, losses = given.losses,
    on_trial = given.on_trial, since_at = {now}
from unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(state)s::text[],
    %(generation)s::bigint[], %(owner)s::text[], %(incarnation)s::text[], %(target)s::text[],
    %(deadline_at)s::bigint[], %(losses)s::integer[], %(on_trial)s::boolean[]
) as given (
    consumer, category_id, partition_id, state, generation, owner, incarnation, target, deadline_at, losses, on_trial
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
