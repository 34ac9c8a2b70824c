"""What a signal or an event means: the catalogue, the XID policy, the engine that weighs events.

Lives here: rule files (``data/catalogue``), the XID tables (``data``), their strict loader, and pure
functions from events to findings. Does not live here: reading sources (collector), acting on findings
(remediator), clocks, files written, anything that waits.
"""
