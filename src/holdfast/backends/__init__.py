"""Implementations of the port, one package per store. Opened by URL, never imported."""
