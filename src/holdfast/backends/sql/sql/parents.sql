-- Jobs that wait for parents. A waiting child is in blocked with the key 0, in no order key.
--
-- Whether a job exists in a table is asked by `(select … limit 1) is null`, which is a lookup by key for each row; for
-- `exists` a planner may read the whole table instead.

-- name: places_of
select id::text as id, seq, lane_id, turn, priority from {schema}.job where id = any(:ids::uuid[]);

-- name: add_link
insert into {schema}.parent_link (child_seq, place, parent_seq, run_anyway)
values (:child_seq, :place, :parent_seq, :run_anyway);

-- name: follow_ready
update {schema}.ready set followed = true where lane_id = :lane_id and turn = :turn and seq = :seq;

-- name: follow_scheduled
update {schema}.scheduled set followed = true where run_at = :run_at and seq = :seq;

-- name: follow_blocked
update {schema}.blocked set followed = true where seq = :seq;

-- name: follow_running
update {schema}.running set followed = true where seq = :seq;

-- name: put_waiting
insert into {schema}.blocked (key_id, place, seq, attempt, excused, interrupted, lost, followed)
values (0, :seq, :seq, :attempt, :excused, :interrupted, :lost, :followed);

-- name: mark_broken
update {schema}.parent_link set broken = true where child_seq = :child_seq and parent_seq = :parent_seq;

-- name: clear_broken
update {schema}.parent_link set broken = false where child_seq = :child_seq and broken;

-- name: record_change
insert into {schema}.parent_change (seq) values (:seq);

-- name: changed_parents
select change_id, seq from {schema}.parent_change order by change_id limit :limit
for update skip locked;

-- name: forget_changes
delete from {schema}.parent_change where change_id = any(array(select unnest(:change_ids::bigint[])));

-- name: unsettled_children
-- Of these jobs and their children, those whose state does not agree with the states of all their parents: one that is
-- blocked, although no parent is unfinished or one is broken, and one that was cancelled because of a parent, although
-- none is broken now.
with family as materialized (
    select child_seq as seq from {schema}.parent_link where parent_seq = any(array(select unnest(:seqs::bigint[])))
    union
    select seq from {schema}.job where seq = any(array(select unnest(:seqs::bigint[])))
),
waiting as materialized (
    select family.seq,
           (select 1 from {schema}.blocked as state where state.seq = family.seq and state.key_id = 0 limit 1) as blocked
    from family
    where (select 1 from {schema}.blocked as state where state.seq = family.seq and state.key_id = 0 limit 1) is not null
       or ((select 1 from {schema}.cancelled as state where state.seq = family.seq limit 1) is not null
           and (select 1 from {schema}.parent_link as link
                where link.child_seq = family.seq and link.broken limit 1) is not null)
),
child as materialized (
    select waiting.seq, waiting.blocked,
           (select link.run_anyway from {schema}.parent_link as link
            where link.child_seq = waiting.seq limit 1) as run_anyway,
           (select 1 from {schema}.parent_link as link
            where link.child_seq = waiting.seq
              and (select 1 from {schema}.completed as parent where parent.seq = link.parent_seq limit 1) is null
              and (select 1 from {schema}.failed as parent where parent.seq = link.parent_seq limit 1) is null
              and (select 1 from {schema}.cancelled as parent where parent.seq = link.parent_seq limit 1) is null
              and (select 1 from {schema}.job as parent where parent.seq = link.parent_seq limit 1) is not null
            limit 1) is not null as unfinished,
           (select link.parent_seq from {schema}.parent_link as link
            where link.child_seq = waiting.seq
              and ((select 1 from {schema}.failed as parent where parent.seq = link.parent_seq limit 1) is not null
                or (select 1 from {schema}.cancelled as parent where parent.seq = link.parent_seq limit 1) is not null
                or (select 1 from {schema}.job as parent where parent.seq = link.parent_seq limit 1) is null)
            order by link.place limit 1) as broken_seq
    from waiting
)
select child.seq, child.blocked is not null as is_blocked, child.unfinished, child.run_anyway, child.broken_seq,
       (select job.id::text from {schema}.job as job where job.seq = child.broken_seq limit 1) as broken_id,
       coalesce(
           (select 'failed' from {schema}.failed as parent where parent.seq = child.broken_seq limit 1),
           (select 'cancelled' from {schema}.cancelled as parent where parent.seq = child.broken_seq limit 1)
       ) as broken_state
from child
where case
          when child.blocked is null then child.broken_seq is null or child.run_anyway
          else not child.unfinished or (child.broken_seq is not null and not child.run_anyway)
      end
order by child.seq limit :limit;

-- name: family_of
select (select 1 from {schema}.parent_link as link where link.parent_seq = :seq limit 1) is not null as is_parent,
       (select 1 from {schema}.parent_link as link where link.child_seq = :seq limit 1) is not null as is_child,
       (select 1 from {schema}.parent_link as link
        where link.child_seq = :seq
          and (select 1 from {schema}.completed as parent where parent.seq = link.parent_seq limit 1) is null
          and (select 1 from {schema}.failed as parent where parent.seq = link.parent_seq limit 1) is null
          and (select 1 from {schema}.cancelled as parent where parent.seq = link.parent_seq limit 1) is null
          and (select 1 from {schema}.job as parent where parent.seq = link.parent_seq limit 1) is not null
        limit 1) is not null as unfinished;

-- name: needed_parents
select distinct link.parent_seq as seq from {schema}.parent_link as link
where link.parent_seq = any(array(select unnest(:seqs::bigint[])))
  and (select 1 from {schema}.completed as child where child.seq = link.child_seq limit 1) is null
  and (select 1 from {schema}.failed as child where child.seq = link.child_seq limit 1) is null
  and (select 1 from {schema}.cancelled as child where child.seq = link.child_seq limit 1) is null;

-- name: prune_links
delete from {schema}.parent_link where child_seq = any(array(select unnest(:seqs::bigint[])));

-- name: parents_seen
-- A parent that was deleted has no row in job.
select coalesce(job.id::text, '') as id,
       case
           when job.seq is null then 'deleted'
           when completed.seq is not null then 'completed'
           when failed.seq is not null then 'failed'
           when cancelled.seq is not null then 'cancelled'
           else 'unfinished'
       end as state,
       completed.result as result,
       job.seq as seq
from {schema}.parent_link as link
left join {schema}.job as job on job.seq = link.parent_seq
left join {schema}.completed as completed on completed.seq = link.parent_seq
left join {schema}.failed as failed on failed.seq = link.parent_seq
left join {schema}.cancelled as cancelled on cancelled.seq = link.parent_seq
where link.child_seq = :seq
order by link.place;

-- name: links_of
select child_seq, parent_seq from {schema}.parent_link
where child_seq = any(:seqs::bigint[]) or parent_seq = any(:seqs::bigint[])
order by child_seq, place;

-- name: graph_jobs
select job.id::text as id, job.seq, lane.queue, lane.task,
       case
           {state_of_job}
       end as state
from {schema}.job as job
join {schema}.lane as lane on lane.lane_id = job.lane_id
left join lateral (select seq from {schema}.running where seq = job.seq limit 1) as running on true
left join lateral (select seq from {schema}.completed where seq = job.seq limit 1) as completed on true
{ended_or_waiting}
where job.seq = any(:seqs::bigint[]);
