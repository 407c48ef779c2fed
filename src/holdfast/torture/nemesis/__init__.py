"""The faults, one module for each kind, and the schedule by which they strike."""
