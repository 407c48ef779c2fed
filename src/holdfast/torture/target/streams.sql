-- What a run of streams reads and writes, in words that all dialects understand.
--
-- {categories} and {consumers} are those of runs. The table of effects has no unique constraint on purpose.

-- name: create_stream_effect
create table {at}torture_stream_effect (
    effect_number {number},
    consumer {text} not null,
    category {text} not null,
    partition_id integer not null,
    position_id bigint not null,
    event_id {text} not null,
    generation bigint not null,
    node_id {text} not null
);

-- name: count_foreign_streams
select (select count(*) from {at}category where category not in ({categories}))
     + (select count(*) from {at}consumer where consumer not in ({consumers}));

-- name: insert_stream_effect
insert into {at}torture_stream_effect
    (consumer, category, partition_id, position_id, event_id, generation, node_id)
values

-- name: stream_effect_values
({mark}, {mark}, {mark}, {mark}, {mark}, {mark}, {mark})

-- name: index_stream_effect
create index torture_stream_effect_by_share
on {at}torture_stream_effect (consumer, category, partition_id, position_id);

-- name: last_stream_effect
select coalesce(max(effect_number), 0) from {at}torture_stream_effect;

-- name: doubled_stream_effects
select count(*) from {at}torture_stream_effect as late
where late.effect_number > {after}
  and exists (
    select 1 from {at}torture_stream_effect as early
    where early.consumer = late.consumer and early.category = late.category
      and early.partition_id = late.partition_id and early.position_id = late.position_id
      and early.effect_number < late.effect_number
  );

-- name: partitions_done
-- Of each partition how many events there are, and how many of them every consumer has passed.
select category, head.partition_id, head.position_id, min(coalesce(share.position_id, 0))
from {at}head as head
join {at}category as category on category.category_id = head.category_id
left join {at}allocation as share
    on share.category_id = head.category_id and share.partition_id = head.partition_id
    and share.consumer in ({consumers})
where category in ({categories})
group by category, head.partition_id, head.position_id;

-- name: count_shares
select count(*) from {at}allocation where consumer in ({consumers});

-- name: count_parked
select count(*) from {at}parked where consumer in ({consumers});

-- name: count_owned
select count(*) from {at}allocation where state <> 'free' and consumer in ({consumers});

-- name: shares_seen
select share.consumer, category.category, share.partition_id, share.state, share.generation, share.position_id,
       coalesce((
           select max(effect.position_id) from {at}torture_stream_effect as effect
           where effect.consumer = share.consumer and effect.category = category.category
             and effect.partition_id = share.partition_id
       ), 0)
from {at}allocation as share join {at}category as category on category.category_id = share.category_id
where share.consumer in ({consumers}) and category.category in ({categories})
order by share.consumer, category.category, share.partition_id;

-- name: epoch_seen
select epoch from {at}leadership;

-- name: transitions_seen
select transition_id, consumer, category.category, partition_id, epoch, generation, old_state, new_state, node_id,
       happened_at
from {at}transition as step join {at}category as category on category.category_id = step.category_id
where transition_id > {after} and consumer in ({consumers}) and category.category in ({categories})
order by transition_id;

-- name: all_events
select cast(event_id as {chars}), category.category, partition_id, position_id, stream, version, event_name
from {at}event as event join {at}category as category on category.category_id = event.category_id
where category.category in ({categories})
order by category.category, partition_id, position_id;

-- name: all_stream_effects
select consumer, category, partition_id, generation, position_id, event_id, node_id, effect_number
from {at}torture_stream_effect order by effect_number;

-- name: all_parked
select consumer, category.category, partition_id, position_id, cast(event_id as {chars}), stream, failure
from {at}parked as parked join {at}category as category on category.category_id = parked.category_id
where consumer in ({consumers})
order by consumer, category.category, partition_id, position_id;

-- name: all_shares
select consumer, category.category, share.partition_id, share.generation, state, share.position_id, head.position_id
from {at}allocation as share
join {at}category as category on category.category_id = share.category_id
join {at}head as head on head.category_id = share.category_id and head.partition_id = share.partition_id
where consumer in ({consumers}) and category.category in ({categories})
order by consumer, category.category, share.partition_id;
