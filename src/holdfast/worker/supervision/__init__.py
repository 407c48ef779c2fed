"""Several workers as one program: seats, the children on them, their restarts, their logs, and what the dead held."""
