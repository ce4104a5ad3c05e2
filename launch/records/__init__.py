"""What `ssp eval`, `inspect`, `replay` and `compare` show of episodes and runs."""
