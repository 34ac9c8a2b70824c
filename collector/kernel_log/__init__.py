"""The kernel log: any bytes in, events and problems out.

Lines of every known shape are recognised one by one, by content. Envelope (who says it, when, may it be
believed) and body (what it says) are parsed apart; repeats are counted, not passed on. The parsers are
pure; ``follow`` reads from files and ``/dev/kmsg``.
"""

from collector.kernel_log.context import LogContext
from collector.kernel_log.parser import KernelLogParser, read_kernel_log

__all__ = ["KernelLogParser", "LogContext", "read_kernel_log"]
