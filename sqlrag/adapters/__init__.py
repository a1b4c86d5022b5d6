"""Adapters to the frameworks where people already work; each imports its framework itself."""
