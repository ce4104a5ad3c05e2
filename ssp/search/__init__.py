"""Retrieval: ranking a corpus, its shards, and the sources that a rollout asks."""
