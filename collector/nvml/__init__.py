"""NVML as a source: NVIDIA's library itself, asked through the ``pynvml`` module of nvidia-ml-py.

A call into a wedged driver never returns and cannot be ended in-process, so a child process asks
(``child``), writing one JSON line per thing it learned (``snapshot``), and its deadline ends it;
``reader.read_nvml`` is pure and turns those lines into the very samples, processes and problems that
nvidia-smi gives (same table of fields, same words). ``library`` is the only place that knows pynvml.

Not here: judgement, and anything that changes a device: nothing in this package sets, resets or clears.
"""

from collector.nvml.live import read_live
from collector.nvml.reader import read_nvml

__all__ = ["read_live", "read_nvml"]
