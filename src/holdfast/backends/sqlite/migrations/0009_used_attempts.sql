-- How many attempts of an ended job did not count against its limit; null if it ended before this version.
alter table holdfast_failed add column excused integer;
alter table holdfast_cancelled add column excused integer;
