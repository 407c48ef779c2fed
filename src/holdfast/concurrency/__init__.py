"""Asyncio and threading primitives without any knowledge of Holdfast: every layer may import them."""
