"""Network cards of the training fabric (InfiniBand, RoCE) as the kernel shows them in sysfs.

Lives here: port state, link-downed and symbol-error counters. What a port's state means for a job is for the
rules.
"""

from collector.nic.reader import LIVE_ROOT, read_live, read_tree

__all__ = ["LIVE_ROOT", "read_live", "read_tree"]
