-- Consumers: their positions, their parked events, and the views and actions of operators.
-- The shared file explains the lock modes.

-- name: lock_share
-- For a handler's transaction: until its end, no leader can seize the share. If this process stops responding, the
-- server ends the session after the limit, which unlocks the row.
select position_id, set_config('idle_in_transaction_session_timeout', %(milliseconds)s::text, true)
from {schema}.allocation
where consumer = %(consumer)s::text and partition_id = %(partition_id)s::integer
  and category_id = (select category_id from {schema}.category where category = %(category)s::text)
  and generation = %(generation)s::bigint and state in ('granted', 'revoking')
for key share;

-- name: commit_position_or_fail
-- The same for a statement that is sent together with its COMMIT: a stale grant must make it fail. Plain SQL cannot
-- raise an error, so the statement casts a text that is no integer.
with moved as (
    update {schema}.allocation
    set position_id = %(position)s::bigint,
        losses = case when %(clears)s::boolean then 0 else losses end, on_trial = %(begins_trial)s::boolean
    where consumer = %(consumer)s::text and partition_id = %(partition_id)s::integer
      and category_id = (select category_id from {schema}.category where category = %(category)s::text)
      and generation = %(generation)s::bigint and position_id = %(after)s::bigint and state in ('granted', 'revoking')
    returning 1
)
select case when count(*) = 1 then 1 else ('holdfast: stale grant, ' || count(*) || ' rows')::integer end from moved;

-- name: fetch
-- One statement, so that all rows come from one snapshot. `kind` of a row: 0 the share (its numbers in the columns of
-- an event), 1 an event, 2 an event to retry, 3 a stream, among those of the events, that has parked events.
with share as materialized (
    select allocation.*, category.category, consumer.stream
    from {schema}.category as category
    cross join lateral (
        select consumer, category_id, partition_id, position_id, state, replay_until, losses from {schema}.allocation
        where consumer = %(consumer)s::text and category_id = category.category_id
          and partition_id = %(partition_id)s::integer and generation = %(generation)s::bigint
          and state in ('granted', 'revoking') limit 1
    ) as allocation
    cross join lateral (
        select stream from {schema}.consumer where consumer = %(consumer)s::text limit 1
    ) as consumer
    where category.category = %(category)s::text
),
next as materialized (
    select event.event_id, event.stream, event.event_name, event.version, event.partition_id, event.position_id,
           event.payload, event.headers, event.recorded_at
    from share cross join lateral (
        select * from {schema}.event
        where category_id = share.category_id and partition_id = share.partition_id
          and position_id > %(after)s::bigint
        order by position_id limit case when share.stream is null then %(limit)s::bigint else 0 end
    ) as event
    union all
    select event.event_id, event.stream, event.event_name, event.version, event.partition_id, event.position_id,
           event.payload, event.headers, event.recorded_at
    from share cross join lateral (
        select * from {schema}.event
        where category_id = share.category_id and stream = share.stream and version > %(after)s::bigint
        order by version limit case when share.stream is null then 0 else %(limit)s::bigint end
    ) as event
),
measured as materialized (
    select next.*, sum(octet_length(next.payload)) over running_total as bytes,
           row_number() over running_total as number
    from next window running_total as (order by next.position_id)
),
-- Usually nothing is parked, which takes one index lookup; otherwise one lookup for each stream of the events.
parked_stream as (
    select given.stream
    from share
    cross join lateral (
        select 1 from {schema}.parked
        where consumer = share.consumer and category_id = share.category_id and partition_id = share.partition_id
        order by stream limit 1
    ) as something
    cross join lateral (
        select distinct stream from measured where bytes <= %(max_bytes)s::bigint or number = 1
    ) as given
    cross join lateral (
        select 1 from {schema}.parked
        where consumer = share.consumer and category_id = share.category_id and partition_id = share.partition_id
          and stream = given.stream limit 1
    ) as parked
)
select 0 as kind, null::text as event_id, share.category, share.stream, share.state as event_name,
       share.position_id as version, share.losses as partition_id, coalesce(
           (select position_id from {schema}.head
            where share.stream is null and category_id = share.category_id and partition_id = share.partition_id),
           (select version from {schema}.event where category_id = share.category_id and stream = share.stream
            order by version desc limit 1),
           (select version from {schema}.trimmed_stream
            where category_id = share.category_id and stream = share.stream limit 1),
           0
       ) as position_id, null::text as payload, null::text as headers, share.replay_until as recorded_at,
       0 as attempts, 0::bigint as number
from share
union all
select 1, event.event_id::text, share.category, event.stream, event.event_name, event.version, event.partition_id,
       event.position_id, event.payload, event.headers, event.recorded_at, 0, event.number
from measured as event cross join share where event.bytes <= %(max_bytes)s::bigint or event.number = 1
union all
select 2, event.event_id::text, share.category, event.stream, event.event_name, event.version, event.partition_id,
       event.position_id, event.payload, event.headers, event.recorded_at, parked.attempts, parked.position_id
from share cross join lateral (
    select event_id, attempts, position_id from {schema}.parked
    where consumer = share.consumer and category_id = share.category_id and partition_id = share.partition_id
      and retrying
    order by position_id limit %(limit)s::bigint
) as parked
cross join lateral (select * from {schema}.event where event_id = parked.event_id limit 1) as event
union all
select 3, null, null, stream, null, null, null, null, null, null, null, 0, 0 from parked_stream
order by kind, number;

-- name: parked_among
-- Those of these streams that have parked events other than the ones at `handled`.
select given.stream
from unnest(%(streams)s::text[]) as given (stream)
cross join lateral (
    select 1 from {schema}.parked
    where consumer = %(consumer)s::text and category_id = %(category_id)s::integer
      and partition_id = %(partition_id)s::integer and stream = given.stream
      and position_id <> all(%(handled)s::bigint[])
    limit 1
) as parked;

-- name: retrying_among
-- Those of these streams whose last parked event is to be retried.
select given.stream
from unnest(%(streams)s::text[]) as given (stream)
cross join lateral (
    select retrying from {schema}.parked
    where consumer = %(consumer)s::text and category_id = %(category_id)s::integer
      and partition_id = %(partition_id)s::integer and stream = given.stream
    order by position_id desc limit 1
) as parked
where parked.retrying;

-- name: unpark
delete from {schema}.parked as parked
using unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(position)s::bigint[]
) as given (consumer, category_id, partition_id, position_id)
where parked.consumer = given.consumer and parked.category_id = given.category_id
  and parked.partition_id = given.partition_id and parked.position_id = given.position_id;

-- name: park_again
update {schema}.parked as parked set failure = given.failure, attempts = parked.attempts + given.attempts
from unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(position)s::bigint[],
    %(failure)s::text[], %(attempts)s::integer[]
) as given (consumer, category_id, partition_id, position_id, failure, attempts)
where parked.consumer = given.consumer and parked.category_id = given.category_id
  and parked.partition_id = given.partition_id and parked.position_id = given.position_id;

-- name: retry_no_more
update {schema}.parked as parked set retrying = false
from unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(stream)s::text[],
    %(position)s::bigint[]
) as given (consumer, category_id, partition_id, stream, position_id)
where parked.consumer = given.consumer and parked.category_id = given.category_id
  and parked.partition_id = given.partition_id and parked.stream = given.stream and parked.retrying
  and parked.position_id >= given.position_id;

-- part: park_given
insert into {schema}.parked (
    consumer, category_id, partition_id, position_id, event_id, stream, failure, attempts, retrying, parked_at
)
select given.consumer, given.category_id, given.partition_id, given.position_id, event.event_id, given.stream,
       given.failure, given.attempts, given.retrying, {now}
from unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(position)s::bigint[],
    %(stream)s::text[], %(failure)s::text[], %(attempts)s::integer[], %(retrying)s::boolean[]
) as given (consumer, category_id, partition_id, position_id, stream, failure, attempts, retrying);

-- name: park_by_position
-- Idempotent: a repeat finds the row. An event that was trimmed meanwhile is not parked.
{park_given}
cross join lateral (
    select event_id from {schema}.event
    where category_id = given.category_id and partition_id = given.partition_id and position_id = given.position_id limit 1
) as event
on conflict (consumer, category_id, partition_id, position_id) do nothing;

-- name: park_by_version
-- For a consumer of one stream: its positions are versions.
{park_given}
cross join lateral (
    select event_id from {schema}.event
    where category_id = given.category_id and stream = given.stream and version = given.position_id limit 1
) as event
on conflict (consumer, category_id, partition_id, position_id) do nothing;

-- name: park_kept
insert into {schema}.parked (
    consumer, category_id, partition_id, position_id, event_id, stream, failure, attempts, retrying, parked_at, event_text
)
select consumer, category_id, partition_id, position_id, event_id, stream, failure, attempts, retrying, {now}, event_text
from unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(position)s::bigint[],
    %(event_id)s::uuid[], %(stream)s::text[], %(failure)s::text[], %(attempts)s::integer[], %(retrying)s::boolean[],
    %(event_text)s::text[]
) as given (consumer, category_id, partition_id, position_id, event_id, stream, failure, attempts, retrying, event_text)
on conflict (consumer, category_id, partition_id, position_id) do nothing;

-- name: list_parked
select category.category, parked.partition_id, parked.position_id, parked.event_id::text as event_id, parked.stream,
       parked.failure, parked.attempts, parked.retrying, parked.parked_at
from {schema}.category as category cross join lateral (
    select * from {schema}.parked
    where consumer = %(consumer)s::text and category_id = category.category_id
      and (category.category > %(after_category)s::text
           or (partition_id, position_id) > (%(after_partition)s::integer, %(after)s::bigint))
    order by partition_id, position_id limit %(limit)s::bigint
) as parked
where category.category >= %(after_category)s::text
order by category.category, parked.partition_id, parked.position_id limit %(limit)s::bigint;

-- name: list_consumers
-- A few index lookups for each share.
select consumer.consumer, consumer.category, consumer.stream, consumer.paused, share.*
from {schema}.consumer as consumer
cross join (select {now} as now) as instant
left join lateral (
    select category.category as of_category, allocation.partition_id, allocation.state, allocation.generation,
           allocation.owner, allocation.target, allocation.position_id, head.position_id as head,
           instant.now - next.recorded_at as behind,
           (select count(*) from {schema}.parked as parked where parked.consumer = allocation.consumer
               and parked.category_id = allocation.category_id and parked.partition_id = allocation.partition_id) as parked,
           instant.now - allocation.since_at as since, allocation.losses
    from {schema}.allocation as allocation
    join {schema}.category as category on category.category_id = allocation.category_id
    cross join lateral (
        select case when consumer.stream is null then (
            select position_id from {schema}.head
            where category_id = allocation.category_id and partition_id = allocation.partition_id
        ) else coalesce(
            (select version from {schema}.event
             where category_id = allocation.category_id and stream = consumer.stream order by version desc limit 1),
            (select version from {schema}.trimmed_stream
             where category_id = allocation.category_id and stream = consumer.stream limit 1),
            0
        ) end as position_id
    ) as head
    cross join lateral (
        select case when consumer.stream is null then (
            select recorded_at from {schema}.event
            where category_id = allocation.category_id and partition_id = allocation.partition_id
              and position_id > allocation.position_id order by position_id limit 1
        ) else (
            select recorded_at from {schema}.event
            where category_id = allocation.category_id and stream = consumer.stream
              and version > allocation.position_id order by version limit 1
        ) end as recorded_at
    ) as next
    where allocation.consumer = consumer.consumer
) as share on true
where not consumer.forgotten
order by consumer.consumer, share.of_category, share.partition_id;

-- name: reset_share
update {schema}.allocation as allocation
set state = 'free', generation = allocation.generation + 1, owner = null, incarnation = null, target = null,
    deadline_at = null, position_id = given.position_id, replay_until = given.head, losses = 0, since_at = {now}
from unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(position_id)s::bigint[],
    %(head)s::bigint[]
) as given (consumer, category_id, partition_id, position_id, head)
where allocation.consumer = given.consumer and allocation.category_id = given.category_id
  and allocation.partition_id = given.partition_id;

-- name: drop_parked_past
delete from {schema}.parked as parked
using unnest(
    %(consumer)s::text[], %(category_id)s::integer[], %(partition_id)s::integer[], %(position_id)s::bigint[]
) as given (consumer, category_id, partition_id, position_id)
where parked.consumer = given.consumer and parked.category_id = given.category_id
  and parked.partition_id = given.partition_id and parked.position_id > given.position_id;
