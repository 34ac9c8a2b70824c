"""First steps on a cluster: look around (``detect``), write a configuration that only watches (``write``).

Nothing here changes a cluster.
"""
