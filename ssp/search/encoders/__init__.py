"""The models of retrieval: encoder.py (texts to vectors), reranker.py (a query with each document), families.py (what their
files say), forward.py (their forward pass)."""
