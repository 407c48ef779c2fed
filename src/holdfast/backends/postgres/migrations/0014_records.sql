-- Small texts that are replaced by compare-and-set: access tokens, audit entries, the progress of bulk operations.
-- `version` grows by one with every change.
create table {schema}.record (
    kind text collate "C" not null,
    name text collate "C" not null,
    version bigint not null,
    content text not null,
    touched_at bigint not null,
    primary key (kind, name)
);
