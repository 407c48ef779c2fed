-- Small texts that are replaced by compare-and-set: access tokens, audit entries, the progress of bulk operations.
-- `version` grows by one with every change.
create table holdfast_record (
    kind text not null,
    name text not null,
    version integer not null,
    content text not null,
    touched_at integer not null,
    primary key (kind, name)
) strict, without rowid;
