"""The vocabulary: what a fleet is made of, and the protocols others implement.

Frozen dataclasses, enums, units, errors, the clock, the marks we leave in a scheduler. No I/O and no
third-party client: everything in the house may import this package, and it imports none of them.
"""
