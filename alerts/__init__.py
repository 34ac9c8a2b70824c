"""Prometheus rules and the Alertmanager configuration, written from the catalogues and committed.

``prometheus/`` (recording and alerting rules), ``alertmanager/`` and ``tests/`` (unit tests for promtool) are
generated: change the code here or the catalogue, then ``sickbay alerts build``. Everything stays inside what
Prometheus 2.42 and Alertmanager 0.25 read.
"""
