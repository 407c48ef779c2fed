-- The tables of Holdfast on MySQL and MariaDB, at the version at which this store began.
--
-- The body of a job is written once, into holdfast_job. The state of the job is a small row in exactly one of the
-- tables ready, scheduled, blocked, running, completed, failed, cancelled: the row moves, the body stays.
--
-- Instants are microseconds since 1970 (UTC); durations are microseconds. Texts compare by byte, trailing spaces
-- included: each server has a collation of its own for that, and reads only its own comment.
--
-- A server commits before and after each of these statements, so an installation can stop half-way: every statement can
-- be repeated, and holdfast_meta, without which there is no installation, comes last.

-- A row per claim; only its number counts, which never returns. Pruning leaves the last one.
create table if not exists holdfast_fence (
    fence bigint not null auto_increment primary key
) {table};

create table if not exists holdfast_queue (
    queue varchar(128) not null primary key,
    paused tinyint not null default 0,
    max_running int,
    rate_jobs int,
    rate_span bigint,
    rate_burst int,
    rate_at bigint not null default 0,
    declared text
) {table};

create table if not exists holdfast_task (
    task varchar(128) not null primary key,
    paused tinyint not null default 0,
    max_running int,
    rate_jobs int,
    rate_span bigint,
    rate_burst int,
    rate_at bigint not null default 0,
    declared text,
    key_max_running int,
    key_rate_jobs int,
    key_rate_span bigint,
    key_rate_burst int,
    key_declared text
) {table};

create table if not exists holdfast_lane (
    lane_id int not null auto_increment primary key,
    queue varchar(128) not null,
    task varchar(128) not null,
    unique key by_name (queue, task)
) {table};

-- Never updated except for `turn` and, by a replacing enqueue, the payload.
create table if not exists holdfast_job (
    seq bigint not null auto_increment primary key,
    id varchar(36) not null,
    lane_id int not null,
    payload longtext not null,
    headers mediumtext,
    priority int not null,
    max_attempts int not null,
    timeout double,
    enqueued_at bigint not null,
    turn bigint not null,
    payload_bytes int not null,
    order_key varchar(128),
    limit_key varchar(128),
    unique_key varchar(128),
    unique_scope varchar(16),
    unique key by_id (id)
) {table};

create table if not exists holdfast_ready (
    lane_id int not null,
    turn bigint not null,
    seq bigint not null,
    payload_bytes int not null,
    attempt int not null default 0,
    excused int not null default 0,
    interrupted int not null default 0,
    lost int not null default 0,
    followed tinyint not null default 0,
    primary key (lane_id, turn, seq)
) {table};

create table if not exists holdfast_scheduled (
    run_at bigint not null,
    seq bigint not null,
    retrying tinyint not null,
    attempt int not null default 0,
    excused int not null default 0,
    interrupted int not null default 0,
    lost int not null default 0,
    followed tinyint not null default 0,
    primary key (run_at, seq)
) {table};

create table if not exists holdfast_key_head (
    key_id bigint not null auto_increment primary key,
    queue varchar(128) not null,
    order_key varchar(128) not null,
    head_seq bigint not null default 0,
    unique key by_name (queue, order_key)
) {table};

create table if not exists holdfast_blocked (
    key_id bigint not null,
    place bigint not null,
    seq bigint not null,
    attempt int not null default 0,
    excused int not null default 0,
    interrupted int not null default 0,
    lost int not null default 0,
    followed tinyint not null default 0,
    primary key (seq),
    key by_key (key_id, place, seq)
) {table};

-- No index on lease_until or worker_id: this table has at most one row per slot of all workers, and an index would be
-- written three times per job.
create table if not exists holdfast_running (
    seq bigint not null primary key,
    lane_id int not null,
    fence bigint not null,
    worker_id varchar(128) not null,
    lease_until bigint not null,
    lease_span bigint not null,
    started_at bigint not null,
    attempt int not null,
    excused int not null,
    interrupted int not null,
    lost int not null,
    isolated tinyint not null,
    cancel_asked tinyint not null default 0,
    cancel_reason mediumtext,
    percent double,
    note mediumtext,
    followed tinyint not null default 0
) {table};

create table if not exists holdfast_completed (
    seq bigint not null primary key,
    fence bigint not null,
    worker_id varchar(128) not null,
    attempt int not null,
    started_at bigint not null,
    finished_at bigint not null,
    result longtext,
    key by_age (finished_at)
) {table};

create table if not exists holdfast_failed (
    seq bigint not null primary key,
    attempt int not null,
    excused int,
    lost int not null,
    finished_at bigint not null,
    reason mediumtext not null,
    key by_age (finished_at)
) {table};

create table if not exists holdfast_cancelled (
    seq bigint not null primary key,
    attempt int not null,
    excused int,
    lost int not null,
    finished_at bigint not null,
    reason mediumtext not null,
    key by_age (finished_at)
) {table};

create table if not exists holdfast_attempt (
    seq bigint not null,
    attempt int not null,
    fence bigint not null,
    by_holder tinyint not null,
    worker_id varchar(128) not null,
    started_at bigint not null,
    ended_at bigint not null,
    outcome varchar(32) not null,
    error_class text,
    message mediumtext,
    traceback mediumtext,
    signature text,
    primary key (seq, attempt)
) {table};

-- Counters are appended here, so that no two transactions write the same row; `fold_counts` adds them up later.
create table if not exists holdfast_tally (
    tally_id bigint not null auto_increment primary key,
    minute_at bigint not null,
    lane_id int not null,
    enqueued bigint not null default 0,
    completed bigint not null default 0,
    retried bigint not null default 0,
    failed bigint not null default 0,
    cancelled bigint not null default 0,
    lost bigint not null default 0,
    run_time bigint not null default 0
) {table};

create table if not exists holdfast_minute_count (
    minute_at bigint not null,
    lane_id int not null,
    enqueued bigint not null default 0,
    completed bigint not null default 0,
    retried bigint not null default 0,
    failed bigint not null default 0,
    cancelled bigint not null default 0,
    lost bigint not null default 0,
    run_time bigint not null default 0,
    primary key (minute_at, lane_id)
) {table};

create table if not exists holdfast_worker (
    worker_id varchar(128) not null primary key,
    heartbeat mediumtext not null,
    tasks mediumtext,
    started_at bigint not null,
    heartbeat_at bigint not null
) {table};

create table if not exists holdfast_schedule (
    name varchar(128) not null primary key,
    definition mediumtext not null,
    task varchar(128) not null,
    owner varchar(128),
    declared_at bigint not null,
    paused tinyint not null,
    next_at bigint not null,
    last_at bigint,
    decided_at bigint not null
) {table};

create table if not exists holdfast_record (
    kind varchar(32) not null,
    name varchar(128) not null,
    version bigint not null,
    content mediumtext not null,
    touched_at bigint not null,
    primary key (kind, name)
) {table};

create table if not exists holdfast_parent_link (
    child_seq bigint not null,
    place int not null,
    parent_seq bigint not null,
    run_anyway tinyint not null,
    broken tinyint not null default 0,
    primary key (child_seq, place),
    key children_of (parent_seq, child_seq)
) {table};

create table if not exists holdfast_parent_change (
    change_id bigint not null auto_increment primary key,
    seq bigint not null
) {table};

-- A limit_key within a lane: as on PostgreSQL. `key_id` is the seq of the job that has added it, negative.
create table if not exists holdfast_limit_key (
    key_id bigint not null primary key,
    lane_id int not null,
    limit_key varchar(128) not null,
    rate_at bigint not null default 0,
    wake_at bigint,
    unique key by_name (lane_id, limit_key),
    key by_time (wake_at)
) {table};

create table if not exists holdfast_limit_slot (
    key_id bigint not null,
    seq bigint not null,
    attempt int not null,
    admitted_at bigint,
    primary key (key_id, seq)
) {table};

create table if not exists holdfast_unique_key (
    task varchar(128) not null,
    unique_key varchar(128) not null,
    id varchar(36) not null,
    unique_scope varchar(16) not null,
    until_at bigint,
    replaced_by varchar(36),
    primary key (task, unique_key),
    key by_end (until_at)
) {table};

create table if not exists holdfast_category (
    category_id int not null auto_increment primary key,
    category varchar(128) not null,
    partitions int not null,
    home text,
    unique key by_name (category)
) {table};

create table if not exists holdfast_head (
    category_id int not null,
    partition_id int not null,
    position_id bigint not null default 0,
    trimmed bigint not null default 0,
    recorded_at bigint not null default 0,
    primary key (category_id, partition_id)
) {table};

create table if not exists holdfast_event (
    category_id int not null,
    partition_id int not null,
    position_id bigint not null,
    stream varchar(255) not null,
    version bigint not null,
    event_id varchar(36) not null,
    event_name varchar(128) not null,
    payload longtext not null,
    headers mediumtext,
    recorded_at bigint not null,
    primary key (category_id, partition_id, position_id),
    unique key by_stream (category_id, stream, version),
    unique key by_id (event_id)
) {table};

create table if not exists holdfast_trimmed_stream (
    category_id int not null,
    stream varchar(255) not null,
    version bigint not null,
    primary key (category_id, stream)
) {table};

create table if not exists holdfast_consumer (
    consumer varchar(128) not null primary key,
    category varchar(128),
    stream varchar(255),
    paused tinyint not null default 0,
    forgotten tinyint not null default 0,
    generation bigint not null default 0
) {table};

create table if not exists holdfast_allocation (
    consumer varchar(128) not null,
    category_id int not null,
    partition_id int not null,
    state varchar(16) not null default 'free',
    generation bigint not null,
    owner varchar(128),
    incarnation varchar(128),
    target varchar(128),
    position_id bigint not null,
    replay_until bigint not null default 0,
    losses int not null default 0,
    on_trial tinyint not null default 0,
    since_at bigint not null,
    deadline_at bigint,
    primary key (consumer, category_id, partition_id),
    key by_owner (owner, incarnation)
) {table};

-- What a handler's transaction locks, shared, in place of its share: a seizure waits for it, and a revocation, which
-- writes the share, does not. The rows never change. By the category's name, so that the lock is a transaction's first
-- read: a snapshot taken earlier might not show a seizure that the lock has waited for.
create table if not exists holdfast_share_latch (
    consumer varchar(128) not null,
    category varchar(128) not null,
    partition_id int not null,
    primary key (consumer, category, partition_id)
) {table};

create table if not exists holdfast_parked (
    consumer varchar(128) not null,
    category_id int not null,
    partition_id int not null,
    position_id bigint not null,
    event_id varchar(36) not null,
    stream varchar(255) not null,
    failure mediumtext,
    attempts int not null default 0,
    retrying tinyint not null default 0,
    parked_at bigint not null,
    event_text longtext,
    primary key (consumer, category_id, partition_id, position_id),
    key by_stream (consumer, category_id, partition_id, stream),
    key by_retry (consumer, category_id, partition_id, retrying, position_id)
) {table};

create table if not exists holdfast_node (
    node_id varchar(128) not null primary key,
    incarnation varchar(128) not null,
    host varchar(255) not null,
    pid bigint not null,
    members mediumtext not null,
    draining tinyint not null default 0,
    joined_at bigint not null
) {table};

-- Apart from holdfast_node, whose rows a leader locks while it moves shares: so a heartbeat never waits for a lock.
create table if not exists holdfast_node_heartbeat (
    node_id varchar(128) not null primary key,
    heartbeat_at bigint not null,
    ttl bigint not null
) {table};

create table if not exists holdfast_leadership (
    only_row tinyint not null primary key,
    epoch bigint not null,
    node_id varchar(128),
    incarnation varchar(128),
    until_at bigint not null
) {table};

insert into holdfast_leadership (only_row, epoch, until_at) values (1, 0, 0) on duplicate key update only_row = 1;

create table if not exists holdfast_transition (
    transition_id bigint not null auto_increment primary key,
    consumer varchar(128) not null,
    category_id int not null,
    partition_id int not null,
    epoch bigint not null,
    generation bigint not null,
    old_state varchar(16) not null,
    new_state varchar(16) not null,
    node_id varchar(128),
    happened_at bigint not null
) {table};

create table if not exists holdfast_meta (
    only_row tinyint not null primary key,
    schema_version int not null,
    installation varchar(36) not null
) {table};

insert into holdfast_meta (only_row, schema_version, installation) values (1, 0, uuid()) on duplicate key update only_row = 1;
