-- What a session sees, asked of the caller's own connection and of ours: two that see the same are in one database.

-- name: identify
select (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint, current_database()::text,
       to_regclass('{schema}.job')::oid::bigint;
