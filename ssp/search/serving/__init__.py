"""The HTTP face of search: api.py is the ASGI app, forms.py its bodies and replies."""
