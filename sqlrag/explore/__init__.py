"""Explores a corpus: its map, pictures and exports; and evaluates how well searches rank."""
