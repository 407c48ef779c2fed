"""Asyncio and threading primitives that know nothing of Holdfast: any layer may use them."""
