-- How many attempts of an ended job did not count against its limit; null if it ended before this version.
alter table {schema}.failed add column excused integer;
alter table {schema}.cancelled add column excused integer;
