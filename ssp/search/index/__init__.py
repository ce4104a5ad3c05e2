"""Index folders.

documents.py and store.py hold them, builder.py makes them (vectors.py: the dense part), budget.py compares what
they need with the memory that there is.
"""
