-- The tables of streams on SQLite: events, consumers, allocation.
--
-- Instants are microseconds since 1970 (UTC); durations are microseconds.

create table holdfast_category (
    category_id integer primary key,
    category text not null unique,
    partitions integer not null
) strict;

-- The head of each partition. Its events have the positions 1 to `position_id`; those up to `trimmed` are deleted.
-- `recorded_at` is that of the last event: the next one is not recorded earlier, even if the clock was set back.
create table holdfast_head (
    category_id integer not null,
    partition_id integer not null,
    position_id integer not null default 0,
    trimmed integer not null default 0,
    recorded_at integer not null default 0,
    primary key (category_id, partition_id)
) strict, without rowid;

create table holdfast_event (
    category_id integer not null,
    partition_id integer not null,
    position_id integer not null,
    stream text not null,
    version integer not null,
    event_id text not null unique,
    event_name text not null,
    payload text not null,
    headers text,
    recorded_at integer not null,
    primary key (category_id, partition_id, position_id)
) strict;

create unique index holdfast_event_by_stream on holdfast_event (category_id, stream, version);

-- The versions of streams whose events were all trimmed: the next event continues from there.
create table holdfast_trimmed_stream (
    category_id integer not null,
    stream text not null,
    version integer not null,
    primary key (category_id, stream)
) strict, without rowid;

-- `category` and `stream` null: the consumer reads the log. A forgotten consumer keeps its row, with the largest
-- generation that it ever had, so that earlier grants stay stale if it subscribes again.
create table holdfast_consumer (
    consumer text primary key,
    category text,
    stream text,
    paused integer not null default 0,
    forgotten integer not null default 0,
    generation integer not null default 0
) strict, without rowid;

-- Generation and position are in one row, so that a commit and a seizure are serialized.
create table holdfast_allocation (
    consumer text not null,
    category_id integer not null,
    partition_id integer not null,
    state text not null default 'free' check (state in ('free', 'granted', 'revoking')),
    generation integer not null,
    owner text,
    incarnation text,
    target text,
    position_id integer not null,
    replay_until integer not null default 0,
    losses integer not null default 0,
    trying integer not null default 0,
    since_at integer not null,
    deadline_at integer,
    primary key (consumer, category_id, partition_id)
) strict, without rowid;

create index holdfast_allocation_owner on holdfast_allocation (owner, incarnation) where owner is not null;

create table holdfast_parked (
    consumer text not null,
    category_id integer not null,
    partition_id integer not null,
    position_id integer not null,
    event_id text not null,
    stream text not null,
    failure text,
    attempts integer not null default 0,
    retrying integer not null default 0,
    parked_at integer not null,
    primary key (consumer, category_id, partition_id, position_id)
) strict, without rowid;

create index holdfast_parked_stream on holdfast_parked (consumer, category_id, partition_id, stream);

create table holdfast_node (
    node_id text primary key,
    incarnation text not null,
    host text not null,
    pid integer not null,
    members text not null,
    draining integer not null default 0,
    ttl integer not null,
    joined_at integer not null,
    beat_at integer not null
) strict, without rowid;

-- One row. The epoch only grows; no node leads while `node_id` is null.
create table holdfast_leadership (
    only_row integer primary key check (only_row = 1),
    epoch integer not null,
    node_id text,
    incarnation text,
    until_at integer not null
) strict;

insert into holdfast_leadership (only_row, epoch, until_at) values (1, 0, 0);

create table holdfast_transition (
    transition_id integer primary key,
    consumer text not null,
    category_id integer not null,
    partition_id integer not null,
    epoch integer not null,
    generation integer not null,
    old_state text not null,
    new_state text not null,
    node_id text,
    happened_at integer not null
) strict;
