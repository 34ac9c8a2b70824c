"""Shipped tables: XID facts, XID policy, and the rules (``catalogue/``)."""
