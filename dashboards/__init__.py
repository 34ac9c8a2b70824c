"""Grafana dashboards as code: what is built here is committed under ``json/`` and compared by a test.

Lives here: the one wrapper around grafanalib, and one module per board. Does not live here: queries on
foreign metric names (recording rules give them ours first, see ``alerts``), thresholds of their own.
"""
