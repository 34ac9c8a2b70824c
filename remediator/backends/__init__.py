"""Schedulers as ``fleet.scheduler.SchedulerBackend``: read, decide, write, read back.

Transport and reading belong to the collector; what may be done to whom is decided here, by pure functions
beside each backend. No incident, no plan and no gate is known here.
"""
