-- Children wait for their parents in blocked, with the key 0. `place` is the parent's place in the list of the call.
-- `broken`: the child was cancelled because of this parent; if none of its parents is failed or cancelled any more, the
-- child waits or runs again. See docs/decisions/0022-sequences-and-graphs.md.
create table holdfast_parent_link (
    child_seq integer not null,
    place integer not null,
    parent_seq integer not null,
    run_anyway integer not null,
    broken integer not null default 0,
    primary key (child_seq, place)
) strict, without rowid;

create index holdfast_children_of on holdfast_parent_link (parent_seq, child_seq);

-- Jobs whose children are to be decided: they have ended, or are to run again after that. Written by the transaction
-- that ends the job; deleted by the one that has read the states of all parents afterwards.
create table holdfast_parent_change (
    change_id integer primary key,
    seq integer not null
) strict;

-- As in the other tables. A head that leaves blocked is followed in any case.
alter table holdfast_blocked add column followed integer not null default 0;
