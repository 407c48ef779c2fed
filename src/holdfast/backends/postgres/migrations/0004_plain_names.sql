-- Tables and columns get the names of the concepts: the head of each order key, the heartbeat, the trial of a share.
alter table {schema}.key_line rename to key_head;
alter table {schema}.key_head rename column line_id to key_id;
alter table {schema}.blocked rename column line_id to key_id;
alter table {schema}.worker rename column beat to heartbeat;
alter table {schema}.worker rename column beat_at to heartbeat_at;
alter table {schema}.node rename column beat_at to heartbeat_at;
alter table {schema}.allocation rename column trying to on_trial;
