"""The games that ship, a file each: `GAME` in it is the declaration."""
