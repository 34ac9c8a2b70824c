"""Any Prometheus-compatible store as a source of samples (Prometheus, Thanos, Mimir, VictoriaMetrics).

Lives here: the one typed adapter over prometheus-api-client (``client``, the only module that imports it),
and the reading of current samples by node. Which signals are asked for is the rules' business.
"""
