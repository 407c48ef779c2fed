"""Jobs: tasks, one attempt at a job, and what a handler may ask of its surroundings."""
