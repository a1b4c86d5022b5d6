"""Measurements, run by hand: ``python -m tests.bench.quality`` and the like. No test asserts a time."""
