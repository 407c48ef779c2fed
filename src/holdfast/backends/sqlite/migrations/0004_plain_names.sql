-- Tables and columns get the names of the concepts: the head of each order key, the heartbeat, the trial of a share.
alter table holdfast_key_line rename to holdfast_key_head;
alter table holdfast_key_head rename column line_id to key_id;
alter table holdfast_blocked rename column line_id to key_id;
alter table holdfast_worker rename column beat to heartbeat;
alter table holdfast_worker rename column beat_at to heartbeat_at;
alter table holdfast_node rename column beat_at to heartbeat_at;
alter table holdfast_allocation rename column trying to on_trial;
