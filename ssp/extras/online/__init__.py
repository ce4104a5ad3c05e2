"""Search engines of the web: engines.py is their table, search.py asks them, pages.py reads what
they found."""
