-- The flag tells that other jobs may wait for the end of this one, not only that it has an order key.
alter table holdfast_ready rename column keyed to followed;
alter table holdfast_scheduled rename column keyed to followed;
alter table holdfast_running rename column keyed to followed;
