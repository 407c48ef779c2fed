-- Nodes, leadership and shares.
--
-- Every transaction that writes holds the write lock of the file, so `lock_`, `hold_` and `stop_` only read.

-- name: forget_silent_nodes
delete from holdfast_node where heartbeat_at < :now - :span and not exists (
    select 1 from holdfast_allocation where owner = node_id);

-- name: write_leadership
-- Only if the row is unchanged since it was read.
update holdfast_leadership
set epoch = :epoch, node_id = :node_id, incarnation = :incarnation, until_at = :now + :lease
where epoch = :seen_epoch and until_at = :seen_until;

-- name: owners_of_shares
select allocation.owner
from json_each(:consumers) as consumer
    join json_each(:categories) as category on category.key = consumer.key
    join json_each(:partition_ids) as place on place.key = consumer.key
    join holdfast_category as of_category on of_category.category = category.value
    join holdfast_allocation as allocation on allocation.consumer = consumer.value
        and allocation.category_id = of_category.category_id and allocation.partition_id = place.value
where allocation.owner is not null;

-- name: lock_shares
select allocation.consumer, of_category.category, allocation.category_id, allocation.partition_id, allocation.state,
    allocation.generation, allocation.owner, allocation.incarnation, allocation.target, allocation.deadline_at,
    allocation.losses, allocation.on_trial
from json_each(:consumers) as consumer
    join json_each(:categories) as category on category.key = consumer.key
    join json_each(:partition_ids) as place on place.key = consumer.key
    join holdfast_category as of_category on of_category.category = category.value
    join holdfast_allocation as allocation on allocation.consumer = consumer.value
        and allocation.category_id = of_category.category_id and allocation.partition_id = place.value;

-- name: lock_shares_to_seize
select allocation.consumer, of_category.category, allocation.category_id, allocation.partition_id, allocation.state,
    allocation.generation, allocation.owner, allocation.incarnation, allocation.target, allocation.deadline_at,
    allocation.losses, allocation.on_trial
from json_each(:consumers) as consumer
    join json_each(:categories) as category on category.key = consumer.key
    join json_each(:partition_ids) as place on place.key = consumer.key
    join holdfast_category as of_category on of_category.category = category.value
    join holdfast_allocation as allocation on allocation.consumer = consumer.value
        and allocation.category_id = of_category.category_id and allocation.partition_id = place.value;
