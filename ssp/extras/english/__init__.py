"""The English world, of real passages: `files.py` has its names and files; docs/english.md is its
page."""
