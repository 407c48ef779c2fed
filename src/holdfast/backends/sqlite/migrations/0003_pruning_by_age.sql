-- Jobs past their retention are found by age, however many have finished since. New entries go to the end of these
-- indexes, so the cost for a completion is too small to measure.

create index holdfast_completed_by_age on holdfast_completed (finished_at);
create index holdfast_failed_by_age on holdfast_failed (finished_at);
create index holdfast_cancelled_by_age on holdfast_cancelled (finished_at);
