-- Pruning, queues, and the version of the schema.

-- name: lock_{ended}: completed, failed, cancelled
-- Without parents of jobs that have not ended. `is_child`: the job has links to parents.
select ended.seq,
       (select 1 from holdfast_parent_link as link where link.child_seq = ended.seq limit 1) is not null as is_child
from {given_seqs}
straight_join holdfast_{ended} as ended force index (primary) on ended.seq = given.seq
where ended.finished_at <= {now} - :keep
  and {no_open_child}
for update;

-- name: prune_{ended}: completed, failed, cancelled
delete gone from {given_seqs}
straight_join holdfast_{ended} as gone force index (primary) on gone.seq = given.seq;

-- name: prune_{rows}s: attempt, job
delete gone from {given_seqs}
straight_join holdfast_{rows} as gone force index (primary) on gone.seq = given.seq;

-- name: prune_fences
-- Its counter outlives the rows; the last one stays, for the server to read the counter from after a crash.
delete from holdfast_fence where fence < :fence order by fence limit :limit;

-- name: last_fence
select coalesce(max(fence), 0) from holdfast_fence;

-- name: lock_tallies
select tally_id, minute_at, lane_id, enqueued, completed, retried, failed, cancelled, lost, run_time
from holdfast_tally force index (primary) where minute_at < {now} - {minute} order by tally_id limit :limit
for update skip locked;

-- name: add_counts
insert into holdfast_minute_count (
    minute_at, lane_id, enqueued, completed, retried, failed, cancelled, lost, run_time
) values (
    :minute_at, :lane_id, :enqueued, :completed, :retried, :failed, :cancelled, :lost, :run_time
)
on duplicate key update
    enqueued = enqueued + values(enqueued), completed = completed + values(completed),
    retried = retried + values(retried), failed = failed + values(failed), cancelled = cancelled + values(cancelled),
    lost = lost + values(lost), run_time = run_time + values(run_time);

-- name: drop_tallies
delete gone from (select * from json_table('[:tally_ids]', '$[*]' columns (tally_id bigint path '$')) as listed) as given
straight_join holdfast_tally as gone force index (primary) on gone.tally_id = given.tally_id;

-- name: prune_counts
delete from holdfast_minute_count where minute_at < {now} - :keep;

-- name: pause
-- With FOUND_ROWS an unchanged row would count: so the update, not the insert, shows whether something has changed.
insert into holdfast_queue (queue, paused) values (:queue, 0) on duplicate key update queue = holdfast_queue.queue;
update holdfast_queue set paused = 1 where queue = :queue and not paused;

-- name: pause_task
insert into holdfast_task (task, paused) values (:task, 0) on duplicate key update task = holdfast_task.task;
update holdfast_task set paused = 1 where task = :task and not paused;

-- name: declare_{kind}: queue, task
insert into holdfast_{kind} ({kind}) values (:name) on duplicate key update {kind} = holdfast_{kind}.{kind};
update holdfast_{kind}
set max_running = :max_running, rate_jobs = :rate_jobs, rate_span = :rate_span, rate_burst = :rate_burst,
    declared = :declared
where {kind} = :name and coalesce(declared, '') <> coalesce(:declared, '');

-- name: declare_key
insert into holdfast_task (task) values (:name) on duplicate key update task = holdfast_task.task;
update holdfast_task
set key_max_running = :max_running, key_rate_jobs = :rate_jobs, key_rate_span = :rate_span,
    key_rate_burst = :rate_burst, key_declared = :declared
where task = :name and coalesce(key_declared, '') <> coalesce(:declared, '');

-- name: add_schedule
-- Adds nothing if the schedule exists. If another transaction is adding it, this fails, and the verb is repeated.
insert into holdfast_schedule
    (name, definition, task, owner, declared_at, paused, next_at, last_at, decided_at)
select :name, :definition, :task, :owner, :declared_at, :paused, :next_at, :last_at, :decided_at from holdfast_meta
where not exists (select 1 from holdfast_schedule where name = :name);

-- name: add_record
-- As `add_schedule`.
insert into holdfast_record (kind, name, version, content, touched_at)
select :kind, :name, 1, :content, {now} from holdfast_meta
where not exists (select 1 from holdfast_record where kind = :kind and name = :name);

-- name: has_meta_table
select exists (
    select 1 from information_schema.tables where table_schema = database() and table_name = 'holdfast_meta'
) as found;

-- name: schema_version
select schema_version from holdfast_meta;

-- name: set_schema_version
update holdfast_meta set schema_version = :version;

-- name: migration_lock
-- Until the session ends: a commit, which each statement of a migration makes, does not release it.
select get_lock(concat('holdfast ', left(sha2(database(), 256), 40)), :seconds);

-- name: server_look
select version(), @@version_comment, (
    select count(*) from information_schema.engines where engine = 'InnoDB' and support in ('YES', 'DEFAULT')
), @@max_allowed_packet;

-- name: server_facts
select 'version' as fact, version() as value
union all select 'version_comment', @@version_comment
union all select 'innodb_flush_log_at_trx_commit', @@innodb_flush_log_at_trx_commit
union all select 'log_bin', @@log_bin
union all select 'sync_binlog', @@sync_binlog
union all select 'binlog_format', @@binlog_format
union all select 'max_connections', @@max_connections
union all select 'max_allowed_packet', @@max_allowed_packet
union all select 'read_only', @@read_only
union all select 'size', coalesce((
    select concat(round(sum(data_length + index_length) / 1048576, 1), ' MB') from information_schema.tables
    where table_schema = database() and table_name like 'holdfast\_%'
), '0 MB')
union all select 'other_engines', coalesce((
    select group_concat(table_name) from information_schema.tables
    where table_schema = database() and table_name like 'holdfast\_%' and engine <> 'InnoDB'
), 'none')
union all select 'database', database()
union all select 'now_us', cast({now} as char);

-- name: oldest_transaction
-- Needs the privilege PROCESS. `trx_started` is in the zone of the server's machine, whatever that of the session is.
select coalesce(max(timestampdiff(second, trx_started, convert_tz(utc_timestamp(), '+00:00', 'SYSTEM'))), 0)
from information_schema.innodb_trx;

-- name: default_isolation
-- The variable has two names.
show global variables where variable_name in ('transaction_isolation', 'tx_isolation');

-- name: identify
-- What a session sees. Runs on the caller's connection and on ours: equal results mean the same tables.
select database(), (select installation from holdfast_meta);

-- name: session_variables
-- Which server this is: MySQL and MariaDB have a variable each. Whether it checks snapshots: newer MariaDB does. The
-- bytes of the longest message that it accepts.
show session variables where variable_name in (
    'server_uuid', 'server_uid', 'innodb_snapshot_isolation', 'max_allowed_packet'
);

-- name: last_jobs
-- Changes when jobs are enqueued, or events appended; not if a transaction with smaller numbers commits last. That and
-- other changes are found by polling workers.
select (select max(seq) from holdfast_job), (select sum(position_id) from holdfast_head);

-- name: last_ends
-- Changes when jobs end, except by the deletion of old ones in the same instant.
select (select max(finished_at) from holdfast_completed), (select max(finished_at) from holdfast_failed),
       (select max(finished_at) from holdfast_cancelled);
