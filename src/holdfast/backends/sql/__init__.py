"""Code that the SQL stores share. It depends on no database: each store provides its statements and driver."""
