"""From bytes to records: what no record can be is refused, wrappings are taken off, envelopes opened.

Needs memory of the lines before: a record's later lines carry no envelope of their own.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from collector.kernel_log.context import LogContext
from collector.kernel_log.dmesg import RelativeClock
from collector.kernel_log.envelope import open_envelope
from collector.kernel_log.physical import Joiner, split_frames
from collector.kernel_log.record import LogRecord, Opened, Unreadable
from collector.kernel_log.text import MAX_LINE_BYTES, clean, decode, is_binary

MAX_JSON_BYTES = 8 * 1024 * 1024
"""A whole array of records may stand on one line (``dmesg --json | jq -c``)."""
_MAX_BODY_CHARS = 8192
_KMSG_ATTRIBUTE = re.compile(r" [A-Z_]+=")
_JSON_STARTS = (b"{", b"[{")
# Every text that this reader could say anything about holds one of these.
_WORDS = (
    b"NVRM",
    b"nvidia",
    b"Xid",
    b"AER",
    b"PCIe Bus",
    b"EDAC",
    b"Hardware Error",
    b"hardware memory error",
    b"DPC",
    b"blocked for",
    b"Linux version",
    b"repeated",
    b"fallen off",
    b"-- ",
    b"Missed ",
    b"dropped",
)

_PLAIN_BYTES = bytes(range(0x20, 0x7F)) + b"\t\r\n"
# How a line with an envelope of its own begins. dmesg's relative stamps are none: each counts from the last.
_STAMPED = re.compile(
    rb"<\d{1,3}>|\d{1,4},\d{1,19},|\[ *\d{1,12}\.\d{1,9}\]|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:|"
    rb"\d{4}-\d\d-\d\d[T ]\d\d:|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:|(?:kern|user|daemon) *:[a-z]{3,6} *: *\["
)


def is_plain(block: bytes) -> bool:
    """True for text without any word that this reader knows, and without bytes that no log should hold."""
    return not any(word in block for word in _WORDS) and not block.translate(None, _PLAIN_BYTES)


def is_dull(raw: bytes) -> bool:
    """True for a line of ``is_plain`` text that need not be read: sound, and of no interest. Most lines are.

    False is always safe: the line is then read in full.
    """
    if len(raw) > MAX_LINE_BYTES:
        return False
    return _is_dull_json(raw) if raw[:1] == b"{" else _STAMPED.match(raw) is not None


def _is_dull_json(raw: bytes) -> bool:
    """A sound journald record. Its text must be one: an array of bytes may hide any word."""
    if b'"MESSAGE"' not in raw or b":[" in raw or b": [" in raw or b"null" in raw or b"\\u00" in raw:
        return False
    try:
        return isinstance(json.loads(raw).get("MESSAGE"), str)
    except (ValueError, AttributeError, RecursionError):
        return False


class Opener:
    """One log, line by line. Not thread-safe."""

    def __init__(self) -> None:
        self._joiner = Joiner()
        self._clock = RelativeClock()
        self._previous: LogRecord | None = None
        self._above: LogRecord | None = None
        self._passed: bytes | None = None

    def pass_by(self, raw: bytes) -> bool:
        """Take note of a dull line without opening it; False when it must be opened all the same."""
        if self._joiner.busy:
            return False
        self._passed = raw
        return True

    def open(self, raw: bytes, context: LogContext) -> list[Opened]:
        """The records of one line (without its newline). Never raises for any bytes."""
        raw = raw.rstrip(b"\r")
        limit = MAX_JSON_BYTES if raw.startswith(_JSON_STARTS) else MAX_LINE_BYTES
        if len(raw) > limit:
            return [Unreadable("a line longer than 64 KiB was skipped", too_large=True)]
        opened: list[Opened] = []
        for frame in split_frames(raw):
            text = clean(decode(frame))
            if not text.strip():
                continue
            if is_binary(frame):
                opened.append(Unreadable("a line that is no text was skipped"))
                continue
            for line in self._joiner.take(text):
                opened.extend(self._open(line, context))
        return opened

    def close(self, context: LogContext) -> list[Opened]:
        """What was still waiting for its end."""
        return [record for line in self._joiner.close() for record in self._open(line, context)]

    def _open(self, line: str, context: LogContext) -> list[Opened]:
        self._catch_up(context)
        if line[0] in " \t":
            return self._open_indented(line, context)
        self._previous = None
        records: list[Opened] = []
        for record in open_envelope(line, context, self._clock):
            records.append(self._remember(record) if isinstance(record, LogRecord) else record)
        return records

    def _catch_up(self, context: LogContext) -> None:
        """The dull line passed by last: what follows it may belong to it."""
        passed, self._passed = self._passed, None
        if passed is None:
            return
        for record in open_envelope(clean(decode(passed)), context, self._clock):
            if isinstance(record, LogRecord):
                self._remember(record)

    def _open_indented(self, line: str, context: LogContext) -> list[Opened]:
        if _KMSG_ATTRIBUTE.match(line) is not None:
            return []  # a dictionary line of /dev/kmsg: an attribute of the record before
        if self._previous is None or self._previous.bare:
            return self._open(line.strip(), context)
        # dmesg prints the later lines of one record indented: same envelope as the line before.
        text = line.strip()[:_MAX_BODY_CHARS]
        return [replace(self._previous, text=text, sequence=None, continued=True)]

    def _remember(self, record: LogRecord) -> LogRecord:
        if len(record.text) > _MAX_BODY_CHARS:
            record = replace(record, text=record.text[:_MAX_BODY_CHARS])
        if not record.bare:
            self._above = record
        elif self._above is not None and not self._above.trusted:
            # Behind a record of user space a line without an envelope is the rest of that record.
            record = replace(record, trusted=False)
        self._previous = record
        return record
