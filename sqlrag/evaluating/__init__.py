"""Evaluation: how well searches rank what people judged relevant."""
