"""From physical lines to logical ones: JSON printed over many lines, event streams, octet-counted frames.

Sources: systemd ``journalctl`` (``-o json-pretty``, ``json-sse``, ``json-seq``), util-linux ``dmesg --json``,
RFC 6587 (octet counting).
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from collector.kernel_log.text import MAX_LINE_BYTES

_GZIP = b"\x1f\x8b"
_BLOCK_BYTES = 64 * 1024
_MAX_CARRIED_BYTES = 16 * 1024 * 1024
_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_UNREADABLE = _GZIP + b"\x00" * 8
_FRAME = re.compile(rb"(\d{1,6}) (?=<\d{1,3}>)")
_EVENT_STREAM = re.compile(r"data: ?(?=\{)")
_OPENS = re.compile(r"\[? ?\{|\}, ?\{")
_CLOSES = re.compile(r"\},?|\} ?\][,}\s]*")
_ENDS = re.compile(r"[\]}][\]},\s]*")
_ELEMENT = re.compile(r"-?\d[\d., ]*\]?,?|\]?,?")


def split_blocks(data: bytes) -> Iterator[bytes]:
    """A capture in pieces that end where a line ends, without that newline; of a gzip file, its content."""
    return file_blocks(io.BytesIO(data))


def file_blocks(file: BinaryIO) -> Iterator[bytes]:
    """As ``split_blocks``, from a file as it is read. A line without end is given up piece by piece.

    UTF-16 (a shell on Windows redirects so) becomes UTF-8. A damaged or cut gzip file gives what comes before
    the damage, then a line that nobody can read.
    """
    carried = b""
    for chunk in _chunks(file):
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield carried + whole
            carried = rest
        elif len(carried) > _MAX_CARRIED_BYTES:
            yield carried
            carried = chunk
        else:
            carried += chunk
    if carried:
        yield carried


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    head = file.read(len(_GZIP))
    if head in _WIDE:
        decoder = codecs.getincrementaldecoder(_WIDE[head])("replace")
        while chunk := file.read(_BLOCK_BYTES):
            yield decoder.decode(chunk).encode("utf-8", "replace")
    elif head == _GZIP:
        try:
            with gzip.open(_Rest(head, file)) as content:
                while chunk := content.read(_BLOCK_BYTES):
                    yield chunk
        except (EOFError, zlib.error, gzip.BadGzipFile):
            yield b"\n" + _UNREADABLE
    else:
        yield head
        while chunk := file.read(_BLOCK_BYTES):
            yield chunk


class _Rest(io.RawIOBase):
    """A file whose first bytes have been read already."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head, self._file = head, file

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        return head or self._file.read(size)


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
