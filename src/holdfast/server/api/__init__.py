"""The API for programs: `/v1`."""
