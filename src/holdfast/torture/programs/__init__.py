"""The processes of a run, each a program: producers, workers and the outside server."""
