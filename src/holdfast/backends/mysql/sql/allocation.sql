-- Nodes, leadership and shares. Heartbeats are in a separate table: one waits only for a seizure for silence, which
-- `stop_nodes` begins.

-- name: put_node
insert into holdfast_node (node_id, incarnation, host, pid, members, joined_at)
values (:node_id, :incarnation, :host, :pid, :members, {now})
on duplicate key update incarnation = values(incarnation), host = values(host), pid = values(pid),
    members = values(members), draining = 0, joined_at = values(joined_at);
insert into holdfast_node_heartbeat (node_id, heartbeat_at, ttl) values (:node_id, {now}, :ttl)
on duplicate key update heartbeat_at = values(heartbeat_at), ttl = values(ttl);

-- name: node_heartbeat
-- The node is read without a lock. If it is replaced meanwhile, this heartbeat counts for its successor, which lives.
update holdfast_node_heartbeat set heartbeat_at = {now}, ttl = :ttl
where node_id = :node_id
  and exists (select 1 from holdfast_node as node where node.node_id = :node_id and node.incarnation = :incarnation);

-- name: remove_node
-- The heartbeat goes with it.
delete node, heartbeat
from holdfast_node as node left join holdfast_node_heartbeat as heartbeat on heartbeat.node_id = node.node_id
where node.node_id = :node_id and node.incarnation = :incarnation;

-- name: list_nodes
select node.node_id, node.incarnation, node.host, node.pid, node.draining, {now} - heartbeat.heartbeat_at as silent,
       heartbeat.ttl, {now} - node.joined_at as joined, node.members,
       (select count(*) from holdfast_allocation as share
        where share.owner = node.node_id and share.incarnation = node.incarnation) as shares
from holdfast_node as node straight_join holdfast_node_heartbeat as heartbeat on heartbeat.node_id = node.node_id
order by node.node_id;

-- name: hold_nodes
-- Until the end of the transaction, none of them can join under a new incarnation, leave or drain.
select node.node_id, node.incarnation, node.draining, (
           select heartbeat_at from holdfast_node_heartbeat as heartbeat where heartbeat.node_id = node.node_id
       ) as heartbeat_at, (
           select ttl from holdfast_node_heartbeat as heartbeat where heartbeat.node_id = node.node_id
       ) as ttl
from holdfast_node as node force index (primary) where node.node_id in (:node_ids)
order by node.node_id lock in share mode;

-- name: stop_nodes
-- As `hold_nodes`; nor can one of these send a heartbeat.
select node.node_id, node.incarnation, node.draining, heartbeat.heartbeat_at, heartbeat.ttl
from holdfast_node as node force index (primary)
straight_join holdfast_node_heartbeat as heartbeat force index (primary) on heartbeat.node_id = node.node_id
where node.node_id in (:node_ids)
order by node.node_id lock in share mode;

-- name: forget_silent_nodes
delete node, heartbeat
from (
    select silent.node_id from holdfast_node_heartbeat as silent
    where silent.heartbeat_at < {now} - :span
      and not exists (select 1 from holdfast_allocation as share where share.owner = silent.node_id)
    limit 1000000
) as given
straight_join holdfast_node as node force index (primary) on node.node_id = given.node_id
straight_join holdfast_node_heartbeat as heartbeat force index (primary)
    on heartbeat.node_id = node.node_id and heartbeat.heartbeat_at < {now} - :span;

-- name: write_leadership
-- Only if the row is unchanged since it was read. A leader that moves shares locks the row until the end of its
-- transaction: this either waits for that, or is first.
update holdfast_leadership
set epoch = :epoch, node_id = :node_id, incarnation = :incarnation, until_at = {now} + :lease
where epoch = :seen_epoch and until_at = :seen_until;

-- name: trim_transitions
-- Only if one of the last `logged` ids is a multiple of `every`.
delete from holdfast_transition
where transition_id <= (
    select oldest.transition_id from (
        select transition_id from holdfast_transition order by transition_id desc limit 1 offset :kept
    ) as oldest
) and (select latest.number from (select max(transition_id) as number from holdfast_transition) as latest) % :every
    < :logged;

-- name: add_share
insert into holdfast_allocation (consumer, category_id, partition_id, generation, position_id, since_at)
values (:consumer, :category_id, :partition_id, :generation, :position_id, {now})
on duplicate key update consumer = holdfast_allocation.consumer;
insert into holdfast_share_latch (consumer, category, partition_id)
select :consumer, category, :partition_id from holdfast_category where category_id = :category_id
on duplicate key update consumer = holdfast_share_latch.consumer;

-- name: owners_of_shares
select allocation.owner
from {given_shares}
straight_join holdfast_allocation as allocation
    on allocation.consumer = given.consumer and allocation.category_id = given.category_id
    and allocation.partition_id = given.partition_id
where allocation.owner is not null;

-- part: share_columns
allocation.consumer, given.category, allocation.category_id, allocation.partition_id, allocation.state,
       allocation.generation, allocation.owner, allocation.incarnation, allocation.target, allocation.deadline_at,
       allocation.losses, allocation.on_trial;

-- part: given_shares
(
    select consumer.value as consumer, category.category, category.category_id, place.value as partition_id
    from json_table(:consumers, '$[*]' columns (number for ordinality, value varchar(128) character set utf8mb4 path '$')) as consumer
    straight_join json_table(:categories, '$[*]' columns (number for ordinality, value varchar(128) character set utf8mb4 path '$')) as named
        on named.number = consumer.number
    straight_join json_table(:partition_ids, '$[*]' columns (number for ordinality, value int path '$')) as place
        on place.number = consumer.number
    straight_join holdfast_category as category on category.category = named.value
    limit 1000000
) as given;

-- name: lock_shares
-- The caller sorts the shares.
select {share_columns}
from {given_shares}
straight_join holdfast_allocation as allocation force index (primary)
    on allocation.consumer = given.consumer and allocation.category_id = given.category_id
    and allocation.partition_id = given.partition_id
for update;

-- part: latch_and_share
straight_join holdfast_share_latch as latch force index (primary)
    on latch.consumer = given.consumer and latch.category = given.category and latch.partition_id = given.partition_id
straight_join holdfast_allocation as allocation force index (primary)
    on allocation.consumer = given.consumer and allocation.category_id = given.category_id
    and allocation.partition_id = given.partition_id;

-- name: lock_shares_to_seize
-- As `lock_shares`, but waits for transactions of the owners.
select {share_columns}
from {given_shares}
{latch_and_share}
for update;

-- name: free_latches
-- The shares whose owners have no transaction open: their latches are locked here until the end of this transaction.
select latch.consumer, latch.category, latch.partition_id
from {given_shares}
straight_join holdfast_share_latch as latch force index (primary)
    on latch.consumer = given.consumer and latch.category = given.category and latch.partition_id = given.partition_id
for update skip locked;

-- name: lock_shares_of_node
-- Waits for transactions of the node's handlers.
select {share_columns}
from (
    select share.consumer, category.category, share.category_id, share.partition_id
    from holdfast_allocation as share
    straight_join holdfast_category as category on category.category_id = share.category_id
    where share.owner = :node_id order by share.consumer, share.category_id, share.partition_id limit 1000000
) as given
{latch_and_share} and allocation.owner = :node_id
for update;
