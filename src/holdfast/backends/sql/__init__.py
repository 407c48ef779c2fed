"""What the SQL stores share. It knows no database: each store brings its own statements and driver."""
