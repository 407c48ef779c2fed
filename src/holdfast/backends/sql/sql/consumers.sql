-- Consumers: their positions, their parked events, and the views and actions of operators.
--
-- Lock modes of a row of allocation: a handler's transaction locks it `for key share`, which lets the leader revoke the
-- share and the owner commit, and makes a seizure, which locks it `for update`, wait. A commit that parks events locks
-- it `for no key update`, a verb that drops parked events `for share`: so the later of the two sees the effect of the
-- first.

-- name: find_consumer
select category, stream, paused, forgotten, generation from {schema}.consumer where consumer = :consumer::text;

-- name: lock_consumer
select category, stream, paused, forgotten, generation from {schema}.consumer where consumer = :consumer::text
for update;

-- name: add_consumer
-- Waits for a concurrent transaction that adds the same consumer; after its commit, adds nothing.
insert into {schema}.consumer (consumer, category, stream)
values (:consumer::text, :category::text, :stream::text)
on conflict (consumer) do nothing;

-- name: revive_consumer
update {schema}.consumer
set category = :category::text, stream = :stream::text, paused = false, forgotten = false
where consumer = :consumer::text;

-- name: find_granted
-- The share of a valid grant; no row if the grant is stale.
select category_id, position_id, state, replay_until, losses, (
    select stream from {schema}.consumer where consumer = allocation.consumer
) as stream
from {schema}.allocation as allocation
where consumer = :consumer::text and partition_id = :partition_id::integer
  and category_id = (select category_id from {schema}.category where category = :category::text)
  and generation = :generation::bigint and state in ('granted', 'revoking');

-- name: lock_granted
select category_id, position_id, state, replay_until, losses, (
    select stream from {schema}.consumer where consumer = allocation.consumer
) as stream
from {schema}.allocation as allocation
where consumer = :consumer::text and partition_id = :partition_id::integer
  and category_id = (select category_id from {schema}.category where category = :category::text)
  and generation = :generation::bigint and state in ('granted', 'revoking')
for no key update;

-- name: lock_granted_share
select consumer, (select category from {schema}.category where category_id = allocation.category_id) as category,
       category_id, partition_id, state, generation, owner, incarnation, target, deadline_at, losses, on_trial
from {schema}.allocation as allocation
where consumer = :consumer::text and partition_id = :partition_id::integer
  and category_id = (select category_id from {schema}.category where category = :category::text)
  and generation = :generation::bigint and state in ('granted', 'revoking')
for no key update;

-- name: wait_for_share
select position_id from {schema}.allocation
where consumer = :consumer::text and partition_id = :partition_id::integer
  and category_id = (select category_id from {schema}.category where category = :category::text)
  and generation = :generation::bigint and state in ('granted', 'revoking')
for update;

-- name: commit_position
update {schema}.allocation
set position_id = :position::bigint,
    losses = case when :clears::boolean then 0 else losses end, on_trial = :begins_trial::boolean
where consumer = :consumer::text and partition_id = :partition_id::integer
  and category_id = (select category_id from {schema}.category where category = :category::text)
  and generation = :generation::bigint and position_id = :after::bigint and state in ('granted', 'revoking');

-- name: retrying_at
-- Those of these positions that have a parked event to be retried.
select position_id, stream from {schema}.parked
where consumer = :consumer::text and category_id = :category_id::integer
  and partition_id = :partition_id::integer and retrying
  and position_id = any(:positions::bigint[]);

-- name: lock_shares_of_consumer
-- Locked in the order that all verbs use.
select consumer, (select category from {schema}.category where category_id = allocation.category_id) as category,
       category_id, partition_id, state, generation, owner, incarnation, target, deadline_at, losses, on_trial
from {schema}.allocation as allocation
where consumer = :consumer::text
order by consumer, category_id, partition_id for update;

-- name: hold_shares_of_consumer
select category_id, partition_id from {schema}.allocation where consumer = :consumer::text
order by consumer, category_id, partition_id for share;

-- name: hold_shares_of_category
select consumer, partition_id from {schema}.allocation
where category_id = (select category_id from {schema}.category where category = :category::text)
order by consumer, category_id, partition_id for share;

-- name: retry_parked
update {schema}.parked set retrying = true
where consumer = :consumer::text and (:stream::text is null or stream = :stream::text);

-- name: drop_parked
delete from {schema}.parked
where consumer = :consumer::text and (:stream::text is null or stream = :stream::text)
  and (:event_id::uuid is null or event_id = :event_id::uuid);

-- name: pause_consumer
update {schema}.consumer set paused = true where consumer = :consumer::text and not paused;

-- name: resume_consumer
update {schema}.consumer set paused = false where consumer = :consumer::text and paused;

-- name: held_by_live_node
select 1 as held
from {schema}.allocation as allocation
join {schema}.node as node on node.node_id = allocation.owner and node.incarnation = allocation.incarnation
where allocation.consumer = :consumer::text and {now} - node.heartbeat_at <= node.ttl limit 1;

-- name: forget_shares
delete from {schema}.allocation where consumer = :consumer::text;

-- name: forget_parked
delete from {schema}.parked where consumer = :consumer::text;

-- name: forget_consumer
update {schema}.consumer set forgotten = true, paused = false, generation = :generation::bigint
where consumer = :consumer::text;

-- name: unpark
delete from {schema}.parked
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and position_id = :position;

-- name: park_again
update {schema}.parked set failure = :failure, attempts = attempts + :attempts
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and position_id = :position;

-- name: retry_no_more
update {schema}.parked set retrying = false
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id and stream = :stream
    and position_id >= :position;

-- part: park_stored_event
insert into {schema}.parked
    (consumer, category_id, partition_id, position_id, event_id, stream, failure, attempts, retrying, parked_at)
select :consumer, :category_id, :partition_id, :position, event_id, :stream, :failure, :attempts, :retrying, {now}
from {schema}.event;

-- name: park_by_position
-- A repeat finds the row already written; an event that was trimmed meanwhile is not parked.
{park_stored_event}
where category_id = :category_id and partition_id = :partition_id and position_id = :position
on conflict do nothing;

-- name: park_by_version
-- For a consumer of one stream, whose positions are versions.
{park_stored_event}
where category_id = :category_id and stream = :stream and version = :position
on conflict do nothing;

-- name: park_kept
-- Parks an event that another system keeps, together with its content. A repeat finds the row already written.
insert into {schema}.parked
    (consumer, category_id, partition_id, position_id, event_id, stream, failure, attempts, retrying, parked_at, event_text)
values (:consumer, :category_id, :partition_id, :position, :event_id, :stream, :failure, :attempts, :retrying, {now}, :event_text)
on conflict do nothing;

-- name: has_parked
-- A row if anything is parked of a share, whose category is named.
select 1 as is_there from {schema}.parked
where consumer = :consumer::text and partition_id = :partition_id::integer
  and category_id = (select category_id from {schema}.category where category = :category::text)
limit 1;

-- name: list_kept_retries
-- The first parked events, of those that another system keeps, that are to be handled again.
select attempts, event_text from {schema}.parked
where consumer = :consumer::text and category_id = :category_id::integer and partition_id = :partition_id::integer
  and retrying and event_text is not null
order by position_id limit :limit::bigint;

-- name: reset_share
update {schema}.allocation
set state = 'free', generation = generation + 1, owner = null, incarnation = null, target = null, deadline_at = null,
    position_id = :position_id, replay_until = :head, losses = 0, since_at = {now}
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id;

-- name: drop_parked_past
delete from {schema}.parked
where consumer = :consumer and category_id = :category_id and partition_id = :partition_id
    and position_id > :position_id;

-- name: list_consumers
-- A few index lookups for each share.
select consumer.consumer, consumer.category, consumer.stream, consumer.paused, category.category as of_category,
    allocation.partition_id, allocation.state, allocation.generation, allocation.owner, allocation.target,
    allocation.position_id,
    case when consumer.stream is null then (
        select position_id from {schema}.head
        where category_id = allocation.category_id and partition_id = allocation.partition_id
    ) else coalesce(
        (select max(version) from {schema}.event
            where category_id = allocation.category_id and stream = consumer.stream),
        (select version from {schema}.trimmed_stream
            where category_id = allocation.category_id and stream = consumer.stream),
        0
    ) end as head,
    {now} - case when consumer.stream is null then (
        select recorded_at from {schema}.event
        where category_id = allocation.category_id and partition_id = allocation.partition_id
            and position_id > allocation.position_id order by position_id limit 1
    ) else (
        select recorded_at from {schema}.event
        where category_id = allocation.category_id and stream = consumer.stream
            and version > allocation.position_id order by version limit 1
    ) end as behind,
    (select count(*) from {schema}.parked as parked where parked.consumer = allocation.consumer
        and parked.category_id = allocation.category_id and parked.partition_id = allocation.partition_id) as parked,
    {now} - allocation.since_at as since, allocation.losses
from {schema}.consumer as consumer
left join {schema}.allocation as allocation on allocation.consumer = consumer.consumer
left join {schema}.category as category on category.category_id = allocation.category_id
where not consumer.forgotten
order by consumer.consumer, category.category, allocation.partition_id;
