"""What `ssp bank` shows of questions, and how it asks one again."""
