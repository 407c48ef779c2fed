-- What is past its retention is found by its age, however many jobs have finished since.
--
-- Of the jobs that were completed by one statement, which are of one age, only one is in the index: an entry for each of
-- them was a ninth more log to write for a job. That one has in `batch` what the statement was given; in the others it is
-- null. A row that says nothing, as those that were there before, stands for itself. To compress the batch would cost more
-- than to write it.
alter table {schema}.completed add column batch bigint[] default '{}';
alter table {schema}.completed alter column batch set storage external;

create index holdfast_completed_by_age on {schema}.completed (finished_at) where batch is not null;
create index holdfast_failed_by_age on {schema}.failed (finished_at);
create index holdfast_cancelled_by_age on {schema}.cancelled (finished_at);
