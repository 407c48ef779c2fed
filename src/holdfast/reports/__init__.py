"""Store status as values and text, for the command line and the dashboard.

Findings, explanations, states, error groups and rates, computed from what the app's verbs return. Nothing here prints,
and nothing here knows a terminal or a browser.
"""
