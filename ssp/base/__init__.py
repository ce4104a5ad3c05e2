"""What everything rests on: errors, seeds, episodes, files. Imports nothing of the rest."""
