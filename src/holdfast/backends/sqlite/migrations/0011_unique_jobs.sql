-- Unique jobs: docs/decisions/0021-unique-jobs.md.
--
-- A unique key within a task names the job that took it last. Whether that job still holds it is read from the job's
-- state: no job writes here when it starts or ends. `until_at` is the end of a period. Keys come in no order, so that an
-- enqueue of many writes many pages: those of the index, which are fewer than those of the rows. In the index the key comes
-- before the task: it decides nearly every comparison.
create table holdfast_unique_key (
    task text not null,
    unique_key text not null,
    id text not null,
    unique_scope text not null,
    until_at integer,
    replaced_by text,
    unique (unique_key, task)
) strict;

create index holdfast_unique_key_until on holdfast_unique_key (until_at) where until_at is not null;

-- The unique key that a job was enqueued with; also after another job has taken the key.
alter table holdfast_job add column unique_key text;
alter table holdfast_job add column unique_scope text;
