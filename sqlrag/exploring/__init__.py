"""Draws a corpus: its chunks on a map with labelled clusters, the lengths of its chunks, the ranks of results."""
