"""Index folders: store.py holds them, builder.py makes them (vectors.py: the dense part)."""
