-- Schedules. There are few of them: no statement needs an index other than the primary key.

-- name: all_schedules
select name, definition, task, owner, declared_at, paused, next_at, last_at, decided_at from {schema}.schedule
order by name;

-- name: find_schedules
select name, definition, task, owner, declared_at, paused, next_at, last_at, decided_at from {schema}.schedule
where name = any(:names::text[]) or owner = :owner::text
order by name;

-- name: lock_schedules
select name, definition, task, owner, declared_at, paused, next_at, last_at, decided_at from {schema}.schedule
where name = any(:names::text[]) or owner = :owner::text
order by name for update;

-- name: lock_free_schedules
-- Another transaction that has locked one of them fires it, or is about to change it.
select name, definition, task, owner, declared_at, paused, next_at, last_at, decided_at from {schema}.schedule
where name = any(:names::text[]) or owner = :owner::text
order by name for update skip locked;

-- name: due_schedules
-- A next time that was decided in the future is due: the clock was set back.
select name, definition, case when decided_at > {now} + :grace::bigint then 0 else next_at - {now} end as wait
from {schema}.schedule
where not paused
  and ((task = any(:tasks::text[]) and owner is null) or (name = any(:names::text[]) and owner is not null))
order by wait, name limit :limit::bigint;

-- name: add_schedule
insert into {schema}.schedule
    (name, definition, task, owner, declared_at, paused, next_at, last_at, decided_at)
values (:name, :definition, :task, :owner, :declared_at, :paused, :next_at, :last_at, :decided_at)
on conflict do nothing;

-- name: write_schedule
update {schema}.schedule
set definition = :definition, task = :task, owner = :owner, declared_at = :declared_at, paused = :paused,
    next_at = :next_at, last_at = :last_at, decided_at = :decided_at
where name = :name;

-- name: delete_schedule
delete from {schema}.schedule where name = :name;
