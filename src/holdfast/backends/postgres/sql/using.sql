-- What a session sees. Runs on the caller's connection and on ours: equal results mean the same database.

-- name: identify
select (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint, current_database()::text,
       to_regclass('{schema}.job')::oid::bigint;
