"""`holdfast torture`: prove on your own database that nothing is lost and nothing is doubled.

What is done lies in `holdfast.torture`; here is what a person types and sees.
"""
