"""Hand-written loops, one module per store: the yardsticks. Nothing here imports Holdfast."""
