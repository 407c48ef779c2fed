"""Consumers of streams: which node consumes which partition, and how events are handled."""
