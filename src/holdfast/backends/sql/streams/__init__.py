"""Streams on SQL stores: each rule once, as verbs over named statements; a store adds statements and runners."""
