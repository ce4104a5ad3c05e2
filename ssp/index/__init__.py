"""Index folders.

documents.py and store.py hold them, builder.py makes them (postings.py: BM25, vectors.py: dense); budget.py estimates memory
and time, calibration.py measures recall and time.
"""
