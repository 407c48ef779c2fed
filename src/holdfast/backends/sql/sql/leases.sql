-- Leases and the workers that hold them. Every statement that writes under a lease carries its fence.

-- name: extend_one
update {schema}.running set lease_until = greatest(lease_until, {now} + :span)
where seq = :seq and fence = :fence;

-- name: cancel_asked
select job.id as job_id, running.seq, running.fence
from {schema}.running as running
cross join lateral (select id::text from {schema}.job where seq = running.seq limit 1) as job
where running.worker_id = :worker_id and running.cancel_asked;

-- name: unacknowledged_leases
select job.id as job_id, running.seq, running.fence
from {schema}.running as running
cross join lateral (select id::text from {schema}.job where seq = running.seq limit 1) as job
where running.worker_id = :worker_id and running.fence > :after order by running.seq;

-- name: set_progress
update {schema}.running
set percent = coalesce(:percent::double precision, percent), note = coalesce(:note::text, note)
where seq = :seq and fence = :fence;

-- name: any_expired
select exists (
    select 1 from {schema}.running
    where lease_until <= {now} and (:longest::bigint is null or lease_span <= :longest::bigint)
) as found, {now} as now_us;

-- name: worker_heartbeat
-- A worker's tasks never change, and may be many: only the first heartbeat writes them.
insert into {schema}.worker (worker_id, heartbeat, tasks, started_at, heartbeat_at)
select :worker_id, :heartbeat, :tasks::text, now, now from (select {now} as now) as instant where true
on conflict (worker_id) do update set heartbeat = excluded.heartbeat, heartbeat_at = excluded.heartbeat_at;

-- name: forget_worker
delete from {schema}.worker where worker_id = :worker_id;
