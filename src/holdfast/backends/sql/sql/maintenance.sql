-- Pruning and queues.

-- name: next_due
-- The first scheduled job, or the first limit key that is to be looked at.
select (
           select greatest(0, first_at - {now}) from (
               select min(run_at) as first_at from (
                   select run_at from (select run_at from {schema}.scheduled order by run_at, seq limit 1) as due
                   union all
                   select wake_at from (
                       select wake_at from {schema}.limit_key where wake_at is not null order by wake_at limit 1
                   ) as waking
               ) as next
           ) as soonest where first_at is not null
       ) as wait,
       (select 1 from {schema}.parent_change limit 1) is not null as parents_changed;

-- part: no_open_child
(select 1 from {schema}.parent_link as link
       where link.parent_seq = ended.seq
         and (select 1 from {schema}.completed as child where child.seq = link.child_seq limit 1) is null
         and (select 1 from {schema}.failed as child where child.seq = link.child_seq limit 1) is null
         and (select 1 from {schema}.cancelled as child where child.seq = link.child_seq limit 1) is null
       limit 1) is null;

-- name: old_{ended}: completed, failed, cancelled
-- `(select {now})` is one constant instant, which an index scan can use as its bound; a volatile clock cannot. Parents of
-- jobs that have not ended are passed over here, too: however many there are, older and younger jobs are pruned.
select ended.seq from {schema}.{ended} as ended
where ended.finished_at <= (select {now}) - :keep
  and {no_open_child}
order by ended.finished_at limit :limit;

-- name: prune_{ended}: completed, failed, cancelled
delete from {schema}.{ended} where seq = any(array(select unnest(:seqs::bigint[])));

-- name: prune_attempts
delete from {schema}.attempt where seq = any(array(select unnest(:seqs::bigint[])));

-- name: prune_jobs
delete from {schema}.job where seq = any(array(select unnest(:seqs::bigint[])));

-- name: prune_workers
delete from {schema}.worker where heartbeat_at < {now} - :keep;

-- name: lock_{ended}: completed, failed, cancelled
-- Without parents of jobs that have not ended. `is_child`: the job has links to parents.
select ended.seq,
       (select 1 from {schema}.parent_link as link where link.child_seq = ended.seq limit 1) is not null as is_child
from {schema}.{ended} as ended
where ended.seq = any(array(select unnest(:seqs::bigint[]))) and ended.finished_at <= {now} - :keep
  and {no_open_child}
order by ended.seq for update;

-- name: pause
insert into {schema}.queue as known (queue, paused) values (:queue, true)
on conflict (queue) do update set paused = true where not known.paused;

-- name: pause_task
insert into {schema}.task as known (task, paused) values (:task, true)
on conflict (task) do update set paused = true where not known.paused;

-- name: resume_task
update {schema}.task set paused = false where task = :task and paused;

-- name: resume
update {schema}.queue set paused = false where queue = :queue and paused;
