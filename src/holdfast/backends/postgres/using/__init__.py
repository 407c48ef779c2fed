"""The drivers whose connections callers may pass as `using=`, and the check that one leads to our tables."""
