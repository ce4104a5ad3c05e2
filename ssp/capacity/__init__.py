"""What a run needs and how long it takes, before it starts."""
