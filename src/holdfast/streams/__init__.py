"""Consumers of streams: which partition is consumed where, and how an event becomes an effect."""
