-- Categories whose events another system keeps.

-- Where the events are, as the backend of that system writes it; null: in holdfast_event.
alter table holdfast_category add column home text;

-- A parked event of such a category: the other system may delete it before it is handled.
alter table holdfast_parked add column event_text text;
