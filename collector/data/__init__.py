"""Shipped tables: the canonical signals (``signals.csv``)."""
