"""The models of retrieval: texts to vectors, and a query with each document to a score."""
