"""From physical lines to logical ones: JSON printed over many lines, event streams, octet-counted frames.

Sources: systemd ``journalctl`` (``-o json-pretty``, ``json-sse``, ``json-seq``), util-linux ``dmesg --json``,
RFC 6587 (octet counting).
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator

from collector.kernel_log.text import MAX_LINE_BYTES

_GZIP = b"\x1f\x8b"
_MAX_READ_BYTES = 16 * 1024 * 1024  # a bomb is one long line: it is refused piece by piece
_FRAME = re.compile(rb"(\d{1,6}) (?=<\d{1,3}>)")
_EVENT_STREAM = re.compile(r"data: ?(?=\{)")
_OPENS = re.compile(r"\[? ?\{|\}, ?\{")
_CLOSES = re.compile(r"\},?|\} ?\][,}\s]*")
_ENDS = re.compile(r"[\]}][\]},\s]*")
_ELEMENT = re.compile(r"-?\d[\d., ]*\]?,?|\]?,?")


def split_lines(data: bytes) -> Iterator[bytes]:
    """The lines of a capture without their newline, one at a time; of a gzip file those of its content.

    A damaged or cut gzip file gives the lines before the damage, then one that nobody can read.
    """
    if not data.startswith(_GZIP):
        start, end = 0, data.find(b"\n")
        while end >= 0:
            yield data[start:end]
            start, end = end + 1, data.find(b"\n", end + 1)
        yield data[start:]
        return
    try:
        with gzip.open(io.BytesIO(data)) as file:
            while line := file.readline(_MAX_READ_BYTES):
                yield line.removesuffix(b"\n")
    except (OSError, EOFError, zlib.error):
        yield _GZIP + b"\x00" * 8


def split_frames(raw: bytes) -> list[bytes]:
    """The syslog messages of one line of a TCP capture with octet counting; any other line as it is."""
    frames: list[bytes] = []
    rest = raw
    while (counted := _FRAME.match(rest)) is not None:
        start = counted.end()
        end = start + int(counted[1])
        # A count that does not lead to another frame was none, or counted the line feed: then it is all one.
        if end < len(rest) and _FRAME.match(rest, end) is None:
            end = len(rest)
        frames.append(rest[start:end])
        rest = rest[end:]
    return frames or [raw]


class Joiner:
    """Puts a JSON object that is printed over several lines on one. Not thread-safe."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._chars = 0
        self._seen = False

    @property
    def busy(self) -> bool:
        return bool(self._parts)

    def take(self, line: str) -> list[str]:
        """Logical lines: none while an object goes on; a broken one as far as it got, then the line."""
        words = line.strip()
        if not self._parts:
            return self._outside(line, words)
        if _OPENS.fullmatch(words):
            done = self._finish(whole=words[0] == "}")
            self._start()
            return done
        if _CLOSES.fullmatch(words):
            return self._finish(whole=True)
        goes_on = words[:1] == '"' or _ELEMENT.fullmatch(words) is not None
        if goes_on and self._chars + len(words) <= MAX_LINE_BYTES:
            self._parts.append(words)
            self._chars += len(words)
            return []
        return [*self._finish(whole=False), *self._outside(line, words)]

    def close(self) -> list[str]:
        """What is left of an object whose end did not come."""
        return self._finish(whole=False)

    def _outside(self, line: str, words: str) -> list[str]:
        if _OPENS.fullmatch(words):
            self._start()
            return []
        if words == "[" or (self._seen and _ENDS.fullmatch(words)):
            return []  # brackets of the array around the objects
        stream = _EVENT_STREAM.match(words)
        if stream is not None:
            words = words[stream.end() :]
        if words.startswith("[{") and not words.endswith("]"):
            words = words[1:]
        if words.startswith("{"):
            return [words.rstrip(", ").removesuffix("]") if words.endswith((",", "}]")) else words]
        return [line]

    def _start(self) -> None:
        self._parts, self._chars, self._seen = ["{"], 1, True

    def _finish(self, *, whole: bool) -> list[str]:
        parts, self._parts = self._parts, []
        if len(parts) < 2 or parts[-1].endswith("["):  # noqa: PLR2004 - the brace alone, or around an array
            return []
        return ["".join((*parts, "}" if whole else ""))]
