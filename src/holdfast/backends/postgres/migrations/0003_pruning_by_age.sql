-- Jobs past their retention are found by their age, regardless of how many jobs have finished since.
--
-- Jobs that were completed by one statement have the same age, so only one of them is in the index: an entry for each
-- would add a ninth to the WAL of a job. The `batch` of that row lists the input of the statement; in the others it is
-- null. A row with an empty batch, such as the rows from before this migration, represents only itself. The batch is
-- not compressed: that would cost more than writing it.
alter table {schema}.completed add column batch bigint[] default '{}';
alter table {schema}.completed alter column batch set storage external;

create index holdfast_completed_by_age on {schema}.completed (finished_at) where batch is not null;
create index holdfast_failed_by_age on {schema}.failed (finished_at);
create index holdfast_cancelled_by_age on {schema}.cancelled (finished_at);
