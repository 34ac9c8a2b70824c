"""Lines of the Prometheus text format and of OpenMetrics 1.0, one by one: a bad line costs itself alone.

Sources: "Exposition formats" of the Prometheus documentation, the OpenMetrics 1.0 specification.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LINE_CHARS = 64 * 1024
_EOF = b"# EOF"
_LOOK_BYTES = 256 * 1024
# Units, types the classic format does not know, exemplars, seconds with a fraction.
_OPENMETRICS = re.compile(
    rb"^# UNIT [^\n]|^# TYPE \S+ (?:info|stateset|unknown|gaugehistogram)\r?$|"
    rb"^[^#\n][^\n]{0,4096}\} [^ \n]+(?: [0-9.]+)? # \{|^[^#\n][^\n]{0,4096}\} [^ \n]+ \d{9,10}\.\d+\r?$",
    re.M,
)

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_QUOTED_NAME = re.compile(r'[ \t]*"((?:[^"\\]++|\\.)*+)"[ \t]*(?:,|$)', re.DOTALL)
_PAIR = re.compile(
    r'[ \t]*(?:([a-zA-Z_][a-zA-Z0-9_]*)|"((?:[^"\\]++|\\.)*+)")[ \t]*='
    r'[ \t]*"((?:[^"\\]++|\\.)*+)"[ \t]*(,|$)',
    re.DOTALL,
)
# The braces of one line, quotes respected: what the quick way (the last brace) takes for granted.
_BLOCK = re.compile(r'\{((?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+)\}', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_UNESCAPED = {"n": "\n", "\\": "\\", '"': '"'}

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """One sample as printed. ``labels`` is the text between the braces; ``timestamp`` is in epoch seconds.

    ``other_unit``: it stood there in the other format's unit, which only the number itself shows.
    """

    name: str
    labels: str
    value: float
    value_text: str
    timestamp: float | None
    other_unit: bool = False


class BadLineError(Exception):
    """This line is no sample; the text says why."""


def is_openmetrics(data: bytes) -> bool:
    """True for a complete OpenMetrics body: only that one says ``# EOF``."""
    at = data.rfind(_EOF)
    while at > 0 and data[at - 1 : at] != b"\n":
        at = data.rfind(_EOF, 0, at)
    return at >= 0 and not data[at + len(_EOF) :].partition(b"\n")[0].strip()


def looks_like_openmetrics(data: bytes) -> bool:
    """True for a body without ``# EOF`` that holds what only OpenMetrics has: it was cut off."""
    return _OPENMETRICS.search(data, 0, _LOOK_BYTES) is not None


def split_lines(data: bytes) -> Iterator[str]:
    """The lines without their line feed. Only a line feed ends a line: label values may hold any other."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        if end < 0:
            end = len(data)
        # A longer line is refused by its length alone, whatever it says: its tail need not be decoded.
        yield data[start : min(end, start + MAX_LINE_CHARS + 1)].decode("utf-8", "replace").strip(" \t\r")
        start = end + 1


def parse_line(line: str, *, openmetrics: bool) -> Line:
    """Read one line that is no comment and not empty. Raises BadLineError."""
    if len(line) > MAX_LINE_CHARS:
        raise BadLineError("the line is too long")
    brace = line.find("{")
    space = _first_blank(line)
    if brace < 0 or (-1 < space < brace and line[space:brace].strip()):
        name, labels, tail = line[:space] if space > 0 else line, "", line[space:] if space > 0 else ""
    else:
        name = line[:brace].rstrip(" \t")
        labels, tail = _split_block(line, brace)
    if not name and brace >= 0 and (quoted := _QUOTED_NAME.match(labels)) is not None:
        name, labels = quoted[1], labels[quoted.end() :]  # Prometheus 3 quotes a name of other characters
    elif _NAME.fullmatch(name) is None:
        raise BadLineError("there is no metric name")
    value_text, timestamp = _tail(tail)
    value = _number(value_text)
    if timestamp is None:
        return Line(name, labels, value, value_text, None)
    return Line(name, labels, value, value_text, *_seconds(timestamp, openmetrics=openmetrics))


def parse_labels(text: str) -> Labels:
    """The labels between the braces, unescaped; an empty value is an absent label. Raises BadLineError."""
    labels: Labels = {}
    position, end = 0, len(text.rstrip(" \t"))
    while position < end:
        pair = _PAIR.match(text, position, end)
        if pair is None:
            raise BadLineError("its labels are malformed")
        name, value = pair[1] or pair[2], pair[3]
        if not name:
            raise BadLineError("its labels are malformed")
        if name in labels:
            raise BadLineError("a label stands there twice")
        labels[name] = _ESCAPE.sub(_unescape, value) if "\\" in value else value
        position = pair.end()
    return {name: value for name, value in labels.items() if value}


def _first_blank(line: str) -> int:
    blanks = [at for at in (line.find(" "), line.find("\t")) if at >= 0]
    return min(blanks, default=-1)


def _split_block(line: str, brace: int) -> tuple[str, str]:
    """What stands between the braces, and what follows."""
    closing = line.rfind("}")
    if closing < brace:
        raise BadLineError("its labels do not end")
    tail = line[closing + 1 :]
    # Exemplars have braces of their own, and a brace may stand in a value: then count quotes.
    if not tail.strip() or "#" in line[brace:] or line.find("}", brace) != closing:
        block = _BLOCK.match(line, brace)
        if block is None:
            raise BadLineError("its labels do not end")
        return block[1], line[block.end() :]
    return line[brace + 1 : closing], tail


def _tail(text: str) -> tuple[str, str | None]:
    """Value and timestamp; an exemplar after them is not read."""
    words = text.split(None, 2)
    if not words:
        raise BadLineError("there is no value")
    if len(words) == 1:
        return words[0], None
    if words[1] == "#":
        return words[0], None
    if len(words) > 2 and not words[2].startswith("#"):  # noqa: PLR2004 - value, timestamp, rest
        raise BadLineError("its value is no number")
    return words[0], words[1]


def _number(text: str) -> float:
    # Python reads 1_000 as a number; the formats do not.
    if "_" not in text and text.isascii():
        try:
            return float(text)
        except ValueError:
            pass
    raise BadLineError("its value is no number")


def _seconds(text: str, *, openmetrics: bool) -> tuple[float, bool]:
    """OpenMetrics counts seconds, the classic format whole milliseconds; and whether it was the other way.

    No GPU was watched before 2001, and none after the year 3000: such a date is of the other unit.
    """
    try:
        seconds = _number(text) if openmetrics else int(text) / 1000
    except ValueError as error:
        raise BadLineError("its timestamp is no number") from error
    if openmetrics and _MILLISECONDS[0] <= seconds < _MILLISECONDS[1]:
        return seconds / 1000, True
    if not openmetrics and _SECONDS[0] <= seconds * 1000 < _SECONDS[1]:
        return seconds * 1000, True
    if not 0 <= seconds < _LATEST_SECONDS:
        raise BadLineError("its timestamp is out of range")
    return seconds, False


_SECONDS = (1e9, 3.25e10)
_MILLISECONDS = (1e12, 3.25e13)
_LATEST_SECONDS = 253_402_300_800.0  # the year 10000


def _unescape(match: re.Match[str]) -> str:
    """Unknown escapes stay as they are: dcgm-exporter writes label values without escaping."""
    return _UNESCAPED.get(match[1], match[0])
