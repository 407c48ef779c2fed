"""The verbs, each a generator of steps."""
