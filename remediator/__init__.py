"""Findings become incidents, incidents become plans, plans pass gates, and every step goes into the ledger.

Here: intake, incidents, the planner (``lifecycle``, pure), the gates (pure), the executor, the ledger, the
backends and verification. Not here: what a fault *is* (``rules``), how a scheduler is spoken to
(``collector.slurm``), the HTTP API and the process (``sickbay``).
"""
