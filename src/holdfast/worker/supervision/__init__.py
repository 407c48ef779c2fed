"""Several workers as one program: seats, children, restarts, joined logs, and the release of dead workers' leases."""
