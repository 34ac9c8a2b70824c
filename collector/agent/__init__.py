"""The node agent: kernel log in, events out to the controller, at once and durably.

Lives here: the read loop, the spool that survives crashes, the pusher, the agent's own ``/metrics``.
Not here: what a line means (``collector.kernel_log``), what an event is worth (``rules``), what to do about
it (``remediator``), where the settings come from (``sickbay.cli_agent``).
"""
