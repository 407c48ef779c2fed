"""`holdfast torture`: test on your own database that no job is lost and no effect happens twice.

The run itself is in `holdfast.torture`; this package is its command line.
"""
