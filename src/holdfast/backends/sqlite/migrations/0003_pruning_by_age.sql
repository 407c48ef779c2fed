-- What is past its retention is found by its age, however many jobs have finished since. Jobs enter these indexes at the
-- end, which costs a completion nothing that could be measured.

create index holdfast_completed_by_age on holdfast_completed (finished_at);
create index holdfast_failed_by_age on holdfast_failed (finished_at);
create index holdfast_cancelled_by_age on holdfast_cancelled (finished_at);
