"""Consumers without a SQL store: Kafka's group protocol assigns partitions, and positions are committed offsets."""
