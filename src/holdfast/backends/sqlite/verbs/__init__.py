"""The verbs of the port as blocking functions over an open transaction, one module per verb."""
