"""Slurm as a source: the client (the only transport), the readers of what it prints, and live reading.

``client`` starts the commands and says what an answer means; ``reader.read_captured`` turns bytes into
records without any I/O; ``live`` joins the two. Decisions live elsewhere (remediator/backends).
"""
