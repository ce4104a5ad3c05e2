"""Index folders.

documents.py and store.py hold them, builder.py makes them (postings.py: BM25, vectors.py: dense), budget.py compares what
they need with the memory that there is.
"""
