"""Exporters: a scheduler's state as Prometheus metrics, for people who watch queues and capacity.

``slurm`` and ``kubernetes`` read through the collector's own clients and speak of nodes and queue items;
``classes`` holds the closed lists that labels are taken from; ``gpus`` and ``summary`` turn one read into
counts (pure); ``history`` counts what only a comparison of two reads can tell (starts, and how long they
had waited); ``poller`` reads at its own pace; ``families`` builds the metrics per scrape and ``http`` serves
them. Not here: the controller's and the agent's own metrics, and anything that writes to a scheduler.
"""
