"""Measurements. Each prints what it measured, on what machine; none asserts."""
