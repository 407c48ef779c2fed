"""What people are shown of a store, as values and sentences: for the command line and for the dashboard.

Findings, explanations, states, error groups and rates, computed from what the app's verbs return. Nothing here prints,
and nothing here knows a terminal or a browser.
"""
