"""Jobs: tasks, enqueueing, attempts and the context of a handler."""
