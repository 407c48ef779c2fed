-- The tasks that a worker knows, as JSON; null if it did not report them.
alter table holdfast_worker add column tasks text;
