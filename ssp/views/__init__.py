"""What is looked at beside a run, or after it. Writes nothing that training reads."""
