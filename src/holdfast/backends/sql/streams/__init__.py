"""Streams on SQL stores: every rule once, as verbs over named statements; a store adds its statements and runners."""
