"""The connections that callers pass as `using=`."""
