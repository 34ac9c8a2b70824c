"""From lines to occurrences: what needs memory of the lines before.

Joins the three-line loss message, resolves "repeated N times", gives events the UUID that was printed once
per boot, ties PCIe victims to the error before them. Decides nothing and counts nothing.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import replace

from collector.kernel_log import bodies
from collector.kernel_log.bodies import Statement
from collector.kernel_log.coalesce import WINDOW_SECONDS
from collector.kernel_log.context import SOURCE, LogContext
from collector.kernel_log.dmesg import split_uptime
from collector.kernel_log.groups import Occurrence
from collector.kernel_log.hosts import Host, Start
from collector.kernel_log.opening import Opener, is_dull, is_plain
from collector.kernel_log.record import LogRecord, Opened, Unreadable, canonical_boot_id
from collector.kernel_log.statements import complete_nvlink5, parse_body
from collector.kernel_log.xid import looks_like_fault
from fleet.identity import pci_join_key
from fleet.observations import Event, EventKind, Problem, ProblemReason

_MAX_HOSTS = 1024
_MAX_DEVICES = 1024
_MAX_STARTS = 16
_SPLIT_LINES = 64
_SPLIT_SECONDS = 2.0
_SUMMARY_SECONDS = 60.0
_VICTIM_SECONDS = 5.0
_REPEATED_INNER = re.compile(r"message repeated (?P<count>\d{1,9}) times: \[ ?(?P<text>.*?)\]?$", re.S | re.A)
_REPEATED_LAST = re.compile(r"(?:--- )?last message repeated (?P<count>\d{1,9}) times?(?: ---)?$", re.A)
_JOURNAL_BOOT = re.compile(r"-- (?:Boot (?P<id>[0-9a-f]{32})|Reboot) --$", re.A)
# systemd-journald read too slowly; the console fell behind (kernel/printk).
_MISSED = re.compile(
    r"(?:systemd-journald\[\d+\]: )?Missed (?P<count>\d{1,9}) kernel messages|"
    r"\*\* (?P<dropped>\d{1,9}) (?:printk )?messages? dropped \*\*",
    re.A,
)
_BEHIND_START = 8  # the words that a fault text itself begins with
_KMSG_SEQUENCE = re.compile(rb"\d{1,4},(\d{1,19}),")

Result = Occurrence | Problem


class Interpreter:
    """One log, line by line. Lines of several hosts may be mixed."""

    def __init__(self) -> None:
        self._hosts: OrderedDict[str | None, Host] = OrderedDict()
        self._busy: set[str | None] = set()
        self._opener = Opener()
        self._journal_boot: str | None = None
        self.records = 0
        """Records whose envelope was readable, of interest or not."""

    def feed(self, raw: bytes, context: LogContext, *, plain: bool | None = None) -> list[Result]:
        """What one line (without its newline) says. Never raises for any bytes.

        ``plain``: what ``is_plain`` says of a text that this line is a part of, where it has been asked.
        """
        if plain is None:
            plain = is_plain(raw)
        if (
            plain
            and not self._busy
            and is_dull(raw)
            and self._goes_on(raw, context)
            and self._opener.pass_by(raw)
        ):
            self.records += 1
            return []
        mark = _JOURNAL_BOOT.match(raw[:64].decode("ascii", "replace").strip())
        if mark is not None:
            self._journal_boot = canonical_boot_id(mark["id"]) if mark["id"] else None
            for host in self._hosts.values():
                host.forget_boot()
            return []
        return self._take(self._opener.open(raw, context), context)

    def _goes_on(self, raw: bytes, context: LogContext) -> bool:
        """False where a record of /dev/kmsg may show that some are missing before it."""
        sequence = _KMSG_SEQUENCE.match(raw)
        if sequence is None:
            return True
        host = self._hosts.get(context.node)
        if host is None or host.last_sequence is None or int(sequence[1]) != host.last_sequence + 1:
            return False
        host.last_sequence += 1
        return True

    def _take(self, opened: list[Opened], context: LogContext) -> list[Result]:
        results: list[Result] = []
        for record in opened:
            if isinstance(record, Unreadable):
                reason = ProblemReason.TOO_LARGE if record.too_large else ProblemReason.UNREADABLE
                results.append(_problem(reason, record.message, context, record.host))
                continue
            self.records += 1
            name = context.node or record.host
            host = self._host(name)
            results += self._sequence_gap(host, record, context)
            results += self._expire(host, context.now, context, lines=1)
            results += self._read(host, record, context)
            self._busy.add(name) if host.busy else self._busy.discard(name)
        return results

    def expire(self, context: LogContext, *, everything: bool = False) -> list[Result]:
        """Loss messages whose later lines did not come in time: told as uncertain."""
        results = self._take(self._opener.close(context), context) if everything else []
        for host in self._hosts.values():
            results.extend(self._expire(host, context.now, context, everything=everything))
        return results

    def booted_again(self, occurrence: Occurrence) -> bool:
        """True where the same capture shows a later start: the known boot time is not this one's."""
        host = self._hosts.get(occurrence.event.node)
        return host is not None and host.boots[occurrence.source[0]] > occurrence.boots

    def is_foreign(self, event: Event) -> bool:
        """True for a PCIe error of a device that is known to be bound to another driver: no GPU."""
        if event.kind is not EventKind.PCIE_AER or event.pci is None:
            return False
        host = self._hosts.get(event.node)
        return host is not None and event.pci in host.foreign

    def _host(self, name: str | None) -> Host:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = Host()
            if len(self._hosts) > _MAX_HOSTS:
                self._hosts.popitem(last=False)
        return host

    def _read(self, host: Host, record: LogRecord, context: LogContext) -> list[Result]:
        again = _REPEATED_LAST.match(record.text)
        if again is not None:
            return _repeated(list(host.last), int(again["count"]), record)
        missed = _MISSED.match(record.text)
        if missed is not None:
            count = int(missed["count"] or missed["dropped"])
            message = f"kernel records are missing: {bodies.one_line(record.text)}"
            return [_problem(ProblemReason.PARTIAL, message, context, record.host, count=max(1, count))]
        inner = _REPEATED_INNER.match(record.text.strip())
        text = (split_uptime(inner["text"])[1] if inner is not None else record.text).strip()
        statement = parse_body(text)
        if record.continued and not isinstance(statement, bodies.LostStart | bodies.LostPart):
            statement = None  # texts of users can hold a newline; nothing behind it is a record of its own
        if not record.trusted:
            host.last = ()
            return self._untrusted(statement, text, record, context)
        results = self._apply(host, statement, record, context)
        if (
            statement is not None
            and not record.continued
            and looks_like_fault(text[_BEHIND_START:], partial=True)
        ):
            message = f"two records run into one, the second was not read: {bodies.one_line(text)[:400]}"
            results.append(_problem(ProblemReason.UNREADABLE, message, context, record.host))
        if inner is not None:
            results = _repeated(results, int(inner["count"]), record)
        if statement is None and looks_like_fault(text):
            message = f"a fault text, but not at the start of a kernel record: {bodies.one_line(text)[:200]}"
            results.append(_problem(ProblemReason.UNTRUSTED, message, context, record.host))
        host.last = tuple(one for one in results if isinstance(one, Occurrence))
        return results

    @staticmethod
    def _untrusted(
        statement: Statement | None, text: str, record: LogRecord, context: LogContext
    ) -> list[Result]:
        """A user can write any text; only what would have been a fault is worth a word."""
        silent = (bodies.Nothing, bodies.LostPart, bodies.ForeignDevice, bodies.NewBoot)
        if isinstance(statement, silent) or (statement is None and not looks_like_fault(text)):
            return []
        message = f"not from the kernel, so not believed: {bodies.one_line(text)[:200]}"
        return [_problem(ProblemReason.UNTRUSTED, message, context, record.host)]

    def _apply(
        self, host: Host, statement: Statement | None, record: LogRecord, context: LogContext
    ) -> list[Result]:
        """One statement of the kernel, with what is remembered of this host."""
        match statement:
            case bodies.Sighting(event=event, echo=echo):
                return self._sighting(host, event, record, context, echo=echo)
            case bodies.Malformed(message=message):
                shown = f"{message}: {bodies.one_line(record.text)[:200]}"
                return [_problem(ProblemReason.UNREADABLE, shown, context, record.host)]
            case bodies.LostStart() | bodies.LostPart():
                return self._lost(host, statement, record, context)
            case bodies.ProbeSummary(event=event):
                near = host.last_device_fault
                told = near is not None and _within(near, record, _SUMMARY_SECONDS)
                return [] if told else [self._occurrence(host, event, record, context)]
            case bodies.AerVictim(pci=pci, message=message):
                cause = host.last_aer
                fatal = cause[1] if cause is not None and _within(cause[0], record, _VICTIM_SECONDS) else None
                event = replace(bodies.blank_event(EventKind.PCIE_AER, message), pci=pci, fatal=fatal)
                return [self._occurrence(host, event, record, context, echo=True)]
            case bodies.NewBoot(event=event):
                host.forget_boot(record.shape)
                return [self._occurrence(host, event, record, context)]
            case None:
                return self._unknown(host, record, context)
            case _:
                self._learn(host, statement, record, context)
                return []

    def _unknown(self, host: Host, record: LogRecord, context: LogContext) -> list[Result]:
        """A body without a statement: one line of a report of the firmware's, perhaps."""
        event = host.firmware.take(record.text)
        if event is None:
            return []
        echo = event.kind is EventKind.MACHINE_CHECK  # EDAC prints the error itself, with its count
        return self._sighting(host, event, record, context, echo=echo)

    def _learn(self, host: Host, statement: Statement | None, record: LogRecord, context: LogContext) -> None:
        """What a line tells about devices without reporting a fault."""
        if isinstance(statement, bodies.GpuMapping) and len(host.uuids) < _MAX_DEVICES:
            key = (self._epoch(host, record, context), pci_join_key(statement.pci))
            host.uuids[key] = statement.uuid
        if isinstance(statement, bodies.ForeignDevice) and len(host.foreign) < _MAX_DEVICES:
            host.foreign.add(statement.pci)

    def _sighting(
        self, host: Host, event: Event, record: LogRecord, context: LogContext, *, echo: bool
    ) -> list[Result]:
        if event.kind in (EventKind.GPU_LOST, EventKind.DRIVER_FAULT):
            known_fault, host.last_device_fault = host.last_device_fault, record
            nameless = echo and event.pci is None and known_fault is not None
            if nameless and known_fault is not None and _within(known_fault, record, WINDOW_SECONDS):
                return []
        if event.kind is EventKind.PCIE_AER:
            host.last_aer = (record, event.fatal)
            if event.pci in host.foreign:
                return []
        event = complete_nvlink5(event, context.driver)
        if event.kind is EventKind.SXID:
            known, host.last_sxid = host.last_sxid, (record, event.pci, event.code)
            same = known is not None and known[1:] == (event.pci, event.code)
            if echo and same and known is not None and _within(known[0], record, WINDOW_SECONDS):
                return []  # its Severity and Data lines
        return [self._occurrence(host, event, record, context, echo=echo)]

    def _lost(
        self,
        host: Host,
        statement: bodies.LostStart | bodies.LostPart,
        record: LogRecord,
        context: LogContext,
    ) -> list[Result]:
        if isinstance(statement, bodies.LostStart):
            host.last_device_fault = record
            host.starts.append(Start(statement.pci, statement.message, record, context.now))
            if len(host.starts) > _MAX_STARTS:
                return [self._unfinished(host, host.starts.popleft(), context)]
            return []
        if not host.starts:
            if not statement.lost:
                return []
            message = f"a GPU fell off the bus, and the line that names it is missing: {statement.message}"
            return [_problem(ProblemReason.TRUNCATED, message, context, record.host)]
        start = host.starts[0]
        start.message = bodies.one_line(f"{start.message} {statement.message}")
        if statement.lost is None:
            return []
        host.starts.popleft()
        kind = EventKind.GPU_LOST if statement.lost else EventKind.DRIVER_FAULT
        event = replace(bodies.blank_event(kind, start.message), pci=start.pci)
        return [self._occurrence(host, event, start.record, context)]

    def _expire(
        self, host: Host, now: float, context: LogContext, *, lines: int = 0, everything: bool = False
    ) -> list[Result]:
        results: list[Result] = []
        for start in host.starts:
            start.lines += lines
        while host.starts:
            start = host.starts[0]
            if not (everything or start.lines > _SPLIT_LINES or now - start.arrived > _SPLIT_SECONDS):
                break
            results.append(self._unfinished(host, host.starts.popleft(), context))
        return results

    def _unfinished(self, host: Host, start: Start, context: LogContext) -> Occurrence:
        event = replace(bodies.blank_event(EventKind.GPU_LOST, start.message), pci=start.pci, uncertain=True)
        return self._occurrence(host, event, start.record, context)

    def _epoch(self, host: Host, record: LogRecord, context: LogContext) -> str:
        return self._boot_id(record, context) or f"#{host.boots[record.shape]}"

    def _boot_id(self, record: LogRecord, context: LogContext) -> str | None:
        return record.boot_id or self._journal_boot or context.boot_id

    def _occurrence(
        self, host: Host, event: Event, record: LogRecord, context: LogContext, *, echo: bool = False
    ) -> Occurrence:
        epoch = self._epoch(host, record, context)
        event = replace(
            event,
            node=context.node or record.host,
            time=record.time,
            time_source=record.time_source,
            boot_id=self._boot_id(record, context),
            gpu=host.uuids.get((epoch, pci_join_key(event.pci))) if event.pci is not None else None,
        )
        return Occurrence(
            event=event,
            tick=record.tick,
            ticks=record.ticks,
            epoch=epoch,
            source=host.source_of(record),
            boots=host.boots[record.shape],
            uptime=record.uptime,
            echo=echo,
        )

    @staticmethod
    def _sequence_gap(host: Host, record: LogRecord, context: LogContext) -> list[Result]:
        """/dev/kmsg numbers its records: a jump means that some were overwritten before we read them."""
        if record.sequence is None:
            return []
        last, host.last_sequence = host.last_sequence, record.sequence
        if last is None or record.sequence <= last + 1:
            return []
        missing = record.sequence - last - 1
        message = f"{missing} kernel records are missing before record {record.sequence}"
        return [_problem(ProblemReason.PARTIAL, message, context, record.host, count=missing)]


def _within(earlier: LogRecord, later: LogRecord, seconds: float) -> bool:
    return earlier.ticks == later.ticks and abs(later.tick - earlier.tick) <= seconds


def _repeated(results: list[Result], count: int, record: LogRecord) -> list[Result]:
    """The same, ``count`` times more, at the time of the line that says so."""
    if count == 0:
        return []
    return [
        replace(
            one,
            event=replace(one.event, count=count, time=record.time, time_source=record.time_source),
            tick=record.tick,
            ticks=record.ticks,
            repeat=True,
        )
        if isinstance(one, Occurrence)
        else replace(one, count=count)
        for one in results
    ]


def _problem(
    reason: ProblemReason, message: str, context: LogContext, host: str | None = None, *, count: int = 1
) -> Problem:
    return Problem(source=SOURCE, reason=reason, message=message, node=context.node or host, count=count)
