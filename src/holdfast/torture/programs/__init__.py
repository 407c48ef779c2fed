"""The processes of a run: producers, workers, and the outside world; each a program of its own."""
