"""Captured text to JSON documents: whole ones, what is left of broken ones, and what is no JSON at all.

People capture with ``2>&1``, cut with ``head`` and forget ``-o json``. One broken document costs itself, one
broken item of a list costs itself, and text that is no JSON is told once, by what it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fleet.observations import ProblemReason

_ADVICE = "use kubectl ... -o json"
# The first that matches names the text. Wording of kubectl 1.25 to 1.37 and of client-go's errors.
_TEXTS: tuple[tuple[re.Pattern[str], ProblemReason, str], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), reason, sentence)
    for pattern, reason, sentence in (
        (
            r"\(Forbidden\)|\(Unauthorized\)|must be logged in|provide credentials| is forbidden: ",
            ProblemReason.PERMISSION_DENIED,
            "Kubernetes refused the read",
        ),
        (
            r"command not found|: not found$|executable file not found",
            ProblemReason.TOOL_MISSING,
            "the tool could not be started",
        ),
        (
            r"Unable to connect to the server|[Cc]onnection (?:to the server .* was )?refused"
            r"|no route to host|no such host|connection reset|TLS handshake timeout|\(ServiceUnavailable\)",
            ProblemReason.CONTROLLER_UNREACHABLE,
            "the API server was not reached",
        ),
        (
            r"\(Timeout\)|\(ServerTimeout\)|\(GatewayTimeout\)|deadline exceeded|timed out",
            ProblemReason.TIMEOUT,
            "the API server did not answer in time",
        ),
        (
            r"^Error from server|^[Ee]rror: ",
            ProblemReason.QUERY_ERROR,
            "kubectl answered with an error",
        ),
        (
            r"\A\s*(?:---\s*$|%YAML|(?:- )?(?:apiVersion|kind|items|metadata):)",
            ProblemReason.UNREADABLE,
            f"this is YAML; {_ADVICE}",
        ),
        (
            r"\A\s*(?:NAMESPACE\s+)?NAME\s{2,}|^Name:\s{2,}",
            ProblemReason.UNREADABLE,
            f"this is kubectl's text for people; {_ADVICE}",
        ),
    )
)
# Log lines and deprecation warnings that kubectl prints on stderr beside a good answer (klog's header).
_NOISE = re.compile(r"^(?:Warning: .*|[IW]\d{4} \d\d:\d\d:\d\d\.\d+ .*|\s*)$")
_EMPTY = re.compile(r"^No resources found(?: in \S+ namespace)?\.?$")
_NEXT = re.compile(r"^[{\[]", re.MULTILINE)
_SPACE = re.compile(r"\s*")
_CUT_LITERAL = re.compile(r"(?:-|t|tr|tru|f|fa|fal|fals|n|nu|nul)?\Z")
_SHOWN = 200
_LOOKED_AT = 8_000_000  # characters


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON value. ``broken``: only the parts of a list that could be read."""

    value: Any
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """What could not be used: why, a sentence, how many records."""

    reason: ProblemReason
    message: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Nothing:
    """kubectl's words for an empty answer."""


@dataclass(slots=True)
class Documents:
    """Iterate once. ``doubled``: keys that stood twice in one object; of those the last value counts.

    Looked for in short texts only: hands and scripts write them, no API server does, and it takes as long
    again as the decoding.
    """

    text: str
    doubled: dict[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Document | Fault | Nothing]:
        text = self.text.removeprefix("\ufeff")
        looks = len(text) <= _LOOKED_AT
        decoder = json.JSONDecoder(object_pairs_hook=self._object) if looks else json.JSONDecoder()
        position = 0
        while (position := _skip(text, position)) < len(text):
            if text[position] not in "{[":
                end = _next_document(text, position)
                yield from _words(text[position:end])
                position = end
                continue
            try:
                value, position = decoder.raw_decode(text, position)
                yield Document(value)
            except (ValueError, RecursionError):
                end = _next_document(text, position + 1)
                yield from _rest(text[position:end].rstrip(), decoder, offset=position)
                position = end

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self.doubled[key] = self.doubled.get(key, 0) + 1
                seen.add(key)
        return made


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match is not None else position


def _next_document(text: str, position: int) -> int:
    """Documents start a line: inner objects of indented JSON never stand in its first column."""
    match = _NEXT.search(text, position)
    return match.start() if match is not None else len(text)


def _words(text: str) -> Iterator[Fault | Nothing]:
    """Text between documents: its noise is ignored, the rest is one fault."""
    lines = [line for line in text.splitlines() if not _NOISE.match(line)]
    said = [line for line in lines if not _EMPTY.match(line.strip())]
    if len(said) < len(lines):
        yield Nothing()
    if not said:
        return
    left = "\n".join(said)
    for pattern, reason, sentence in _TEXTS:
        match = pattern.search(left)
        if match is not None:
            line = left[left.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]
            said_so = "" if reason is ProblemReason.UNREADABLE else f": {_one_line(line)}"
            yield Fault(reason, f"{sentence}{said_so}")
            return
    yield Fault(ProblemReason.UNREADABLE, f"no JSON of Kubernetes but {_one_line(left)!r}; {_ADVICE}")


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_SHOWN]


def _rest(text: str, decoder: json.JSONDecoder, *, offset: int) -> Iterator[Document | Fault]:
    """A broken document: the readable part of a list, and what is wrong. ``offset``: where it starts."""
    cut, at = _damage(text, decoder)
    broken = _Broken(text, decoder)
    broken.read()
    if broken.items:
        yield Document({**broken.header, "items": broken.items}, broken=True)
        kept = f"; {len(broken.items)} of its items could be read, what is missing is not known to be gone"
    else:
        kept = "; capture it again, whole" if cut else f"; {_ADVICE}"
    if cut:
        yield Fault(ProblemReason.TRUNCATED, f"JSON breaks off after character {offset + len(text)}{kept}")
    else:
        message = f"JSON is damaged at character {offset + at}{kept}"
        yield Fault(ProblemReason.UNREADABLE, message, max(1, broken.skipped))


def _damage(text: str, decoder: json.JSONDecoder) -> tuple[bool, int]:
    """(it only lacks its end, where it goes wrong)."""
    try:
        decoder.raw_decode(text, 0)
    except json.JSONDecodeError as error:
        ends = error.msg.startswith("Unterminated string") or _CUT_LITERAL.match(text, error.pos) is not None
        return ends, error.pos
    except (ValueError, RecursionError):
        return False, 0
    return False, len(text)


class _Broken:
    """The complete members of a broken JSON object, and the complete elements of its ``items``."""

    def __init__(self, text: str, decoder: json.JSONDecoder) -> None:
        self.header: dict[str, Any] = {}
        self.items: list[Any] = []
        self.skipped = 0
        self._text = text
        self._decoder = decoder
        self._at = 0

    def read(self) -> None:
        if not self._text.startswith("{"):
            return
        self._at = 1
        try:
            while self._members():
                pass
        except (ValueError, RecursionError):
            return

    def _members(self) -> bool:
        key = self._value()
        self._expect(":")
        if key == "items" and self._here() == "[":
            self._at += 1
            while self._item():
                pass
        else:
            value = self._value()
            if isinstance(key, str):
                self.header[key] = value
        return self._comma()

    def _item(self) -> bool:
        if self._here() == "]":
            self._at += 1
            return False
        start = self._at
        try:
            self.items.append(self._value())
        except (ValueError, RecursionError):
            self.skipped += 1
            line = self._text.rfind("\n", 0, start)
            indent = self._text[line:start]  # the next item of indented JSON starts in the same column
            found = self._text.find(indent + "{", start + 1) if line >= 0 and not indent.strip() else -1
            if found < 0:
                raise
            self._at = found
            return True
        if self._comma():
            return True
        self._expect("]")
        return False

    def _here(self) -> str:
        self._at = _skip(self._text, self._at)
        return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        self._here()
        value, self._at = self._decoder.raw_decode(self._text, self._at)
        return value

    def _expect(self, sign: str) -> None:
        if self._here() != sign:
            raise ValueError(f"no {sign}")
        self._at += 1

    def _comma(self) -> bool:
        if self._here() != ",":
            return False
        self._at += 1
        return True
