-- The tasks that a worker knows, as JSON; null if it did not report them.
alter table {schema}.worker add column tasks text;
