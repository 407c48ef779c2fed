-- Unique jobs: docs/decisions/0021-unique-jobs.md.
--
-- A unique key within a task names the job that took it last. Whether that job still holds it is read from the job's
-- state, under the lock of this row: no job writes here when it starts or ends. `until_at` is the end of a period. In
-- the index the key comes before the task: it decides nearly every comparison.
create table {schema}.unique_key (
    task text collate "C" not null,
    unique_key text collate "C" not null,
    id uuid not null,
    unique_scope text not null,
    until_at bigint,
    replaced_by uuid,
    primary key (unique_key, task)
) with (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false
);

create index holdfast_unique_key_until on {schema}.unique_key (until_at) where until_at is not null;

-- The unique key that a job was enqueued with; also after another job has taken the key.
alter table {schema}.job add column unique_key text, add column unique_scope text;
