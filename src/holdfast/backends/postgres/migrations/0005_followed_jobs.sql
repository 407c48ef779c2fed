-- The flag tells that other jobs may wait for the end of this one, not only that it has an order key.
alter table {schema}.ready rename column keyed to followed;
alter table {schema}.scheduled rename column keyed to followed;
alter table {schema}.running rename column keyed to followed;
