"""The faults, one module per kind, and the schedule that injects them."""
