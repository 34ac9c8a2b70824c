"""dcgm-exporter's metrics, and our own exporters', read into samples, allocations and problems.

``exposition`` knows the text formats, ``labels`` who a line speaks of, ``fields`` which metric is which
signal, ``values`` what a number may be, ``hosts`` whose node it is; ``body`` and ``reader`` put them
together; ``xid`` turns the latched XID gauges of one reading after another into events. No I/O: the bytes
come from ``collector.scrape`` or from a file.
"""

from collector.dcgm.reader import Coverage, DcgmRead, read_dcgm, read_dcgm_in_full
from collector.dcgm.xid import XidWatch

__all__ = ["Coverage", "DcgmRead", "XidWatch", "read_dcgm", "read_dcgm_in_full"]
