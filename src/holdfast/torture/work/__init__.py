"""The work under torture: everything that a job can be and a handler can do."""
