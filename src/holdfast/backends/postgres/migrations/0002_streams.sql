-- The tables of streams on PostgreSQL: events, consumers, allocation.
--
-- Instants are microseconds since 1970 (UTC); durations are microseconds. Names sort by their code points, as
-- everywhere else in Holdfast.
--
-- Lock order of all verbs: leadership, consumer, node, allocation, parked; and separately head, in ascending order.

create table {schema}.category (
    category_id integer primary key generated always as identity,
    category text collate "C" not null unique,
    partitions integer not null
);

-- The end of each partition. Its events have the positions 1 to `position_id`; those up to `trimmed` are deleted.
-- `recorded_at` is that of the last event: the next one is not recorded earlier, even if the clock was set back.
-- An append locks the row until the end of its transaction, so that positions are in commit order.
-- Few rows, updated by every append: no indexed column changes, and fillfactor leaves room for the row versions.
create table {schema}.head (
    category_id integer not null,
    partition_id integer not null,
    position_id bigint not null default 0,
    trimmed bigint not null default 0,
    recorded_at bigint not null default 0,
    primary key (category_id, partition_id)
) with (
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
    vacuum_truncate = false
);

-- Written once, never updated. The unique id detects a repeated append.
create table {schema}.event (
    category_id integer not null,
    partition_id integer not null,
    position_id bigint not null,
    stream text collate "C" not null,
    version bigint not null,
    event_id uuid not null unique,
    event_name text not null,
    payload text not null,
    headers text,
    recorded_at bigint not null,
    primary key (category_id, partition_id, position_id)
);

create unique index holdfast_event_by_stream on {schema}.event (category_id, stream, version);

-- The version of streams whose first events were trimmed; a stream without events continues from there.
create table {schema}.trimmed_stream (
    category_id integer not null,
    stream text collate "C" not null,
    version bigint not null,
    primary key (category_id, stream)
);

-- `category` and `stream` null: it reads the log. A forgotten consumer keeps its row, with the largest generation that
-- it ever had, so that its old grants stay stale if it is added again.
create table {schema}.consumer (
    consumer text collate "C" primary key,
    category text collate "C",
    stream text collate "C",
    paused boolean not null default false,
    forgotten boolean not null default false,
    generation bigint not null default 0
);

-- Generation and position are in one row, so a commit and a seizure exclude each other. A commit changes no indexed
-- column.
create table {schema}.allocation (
    consumer text collate "C" not null,
    category_id integer not null,
    partition_id integer not null,
    state text not null default 'free' check (state in ('free', 'granted', 'revoking')),
    generation bigint not null,
    owner text collate "C",
    incarnation text collate "C",
    target text collate "C",
    position_id bigint not null,
    replay_until bigint not null default 0,
    losses integer not null default 0,
    trying boolean not null default false,
    since_at bigint not null,
    deadline_at bigint,
    primary key (consumer, category_id, partition_id)
) with (
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
    vacuum_truncate = false
);

create index holdfast_allocation_owner on {schema}.allocation (owner, incarnation) where owner is not null;

create table {schema}.parked (
    consumer text collate "C" not null,
    category_id integer not null,
    partition_id integer not null,
    position_id bigint not null,
    event_id uuid not null,
    stream text collate "C" not null,
    failure text,
    attempts integer not null default 0,
    retrying boolean not null default false,
    parked_at bigint not null,
    primary key (consumer, category_id, partition_id, position_id)
);

-- Whether a consumer has parked events of a stream, and whether any is to be retried: one lookup at the end of a range.
create index holdfast_parked_stream on {schema}.parked (consumer, category_id, partition_id, stream, retrying);
create index holdfast_parked_retrying on {schema}.parked (consumer, category_id, partition_id, position_id)
where retrying;
create index holdfast_parked_event on {schema}.parked (event_id);

create table {schema}.node (
    node_id text collate "C" primary key,
    incarnation text collate "C" not null,
    host text not null,
    pid integer not null,
    members text not null,
    draining boolean not null default false,
    ttl bigint not null,
    joined_at bigint not null,
    beat_at bigint not null
) with (
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

-- One row. The epoch only increases; there is no leader while `node_id` is null.
create table {schema}.leadership (
    only_row boolean primary key default true check (only_row),
    epoch bigint not null,
    node_id text collate "C",
    incarnation text collate "C",
    until_at bigint not null
) with (
    fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

insert into {schema}.leadership (epoch, until_at) values (0, 0);

create table {schema}.transition (
    transition_id bigint primary key generated always as identity,
    consumer text collate "C" not null,
    category_id integer not null,
    partition_id integer not null,
    epoch bigint not null,
    generation bigint not null,
    old_state text not null,
    new_state text not null,
    node_id text,
    happened_at bigint not null
);
