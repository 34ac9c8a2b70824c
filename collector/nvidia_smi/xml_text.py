"""The XML that nvidia-smi prints, read piece by piece so that damage stays where it is.

Not a general XML parser, on purpose: process names are printed unescaped and break well-formedness, loop
mode prints document after document, a killed tool leaves half of one. Nothing is fetched and nothing
expanded beyond the five predefined entities; the DOCTYPE is skipped, entity declarations are refused. All
work is linear in the input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from collector.nvidia_smi.cells import unescape

MAX_DEPTH = 32
# More wrong tags than this in one piece, and nothing in it is worth believing.
MAX_DAMAGE = 256
_MAX_TEXT = 8192
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[A-Za-z_][\w.-]{0,127})(?:\s[^<>]{0,512})?(?P<empty>/?)>")
_ROOT = re.compile(r"<(?P<end>/?)nvidia_smi_log(?:\s[^<>]{0,512})?>")
_GPU = re.compile(r"<(?P<end>/?)gpu(?:\s(?P<attributes>[^<>]{0,512}))?>")
_GPU_ID = re.compile(r"""\bid\s*=\s*["']([^"'<>]{1,64})["']""")
_PROLOGUE = re.compile(r"<\?xml[^<>]{0,256}\?>|<!DOCTYPE[^<>\[]{0,256}>")
_PROCESS_NAME, _PROCESS_NAME_END = "<process_name>", "</process_name>"


@dataclass(slots=True)
class Element:
    """``text`` is what stands before the first child, unescaped and without blanks around it."""

    name: str
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def at(self, path: str) -> list[Element]:
        """The elements at a path of names below this one: every one, since blocks may repeat."""
        found = [self]
        for name in path.split("/"):
            found = [child for parent in found for child in parent.children if child.name == name]
        return found


@dataclass(frozen=True, slots=True)
class GpuRegion:
    """The text between ``<gpu id=...>`` and its end. ``closed``: the end tag is there."""

    id: str | None
    body: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Document:
    """One ``nvidia_smi_log``: its text outside GPUs, and its GPUs. ``complete``: both its tags are there.

    ``orphans`` counts the ends of GPUs whose beginning is lost.
    """

    head: str
    gpus: tuple[GpuRegion, ...]
    complete: bool
    orphans: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """Everything in one input: documents in order, and the text around them without prologues."""

    documents: tuple[Document, ...]
    outside: str


def prepare(text: str) -> str:
    """Make process names harmless and drop comments; do this before looking at any tag."""
    return _without_comments(_with_escaped_names(text))


def declares_entities(prepared: str) -> bool:
    """True for a DTD with entities: nvidia-smi (also with ``--dtd``) never prints one."""
    return "<!ENTITY" in prepared


def looks_like_xml(prepared: str) -> bool:
    return prepared.lstrip().startswith(("<?xml", "<!DOCTYPE", "<nvidia_smi_log")) or bool(
        _ROOT.search(prepared)
    )


def split_stream(prepared: str) -> Stream:
    """Cut the input at the root's tags. A root that begins inside another one ends that one, cut off."""
    documents: list[Document] = []
    outside: list[str] = []
    position, inside = 0, False
    for tag in _ROOT.finditer(prepared):
        piece = prepared[position : tag.start()]
        if tag["end"]:
            documents.append(_document(piece, complete=inside))
        elif inside:
            documents.append(_document(piece, complete=False))
        else:
            outside.append(piece)
        inside, position = not tag["end"], tag.end()
    rest = prepared[position:]
    if inside:
        documents.append(_document(rest, complete=False))
    else:
        outside.append(rest)
    return Stream(tuple(documents), _without_prologue("\n".join(outside)))


def parse(text: str) -> tuple[Element, int]:
    """A tree of the tags in ``text`` under a nameless root, and in how many places the nesting is wrong."""
    root = Element("")
    stack, damage, position = [root], 0, 0
    for tag in _TAG.finditer(text):
        _add_text(stack[-1], text[position : tag.start()])
        position = tag.end()
        if not tag["end"]:
            damage += _open(stack, tag["name"], empty=bool(tag["empty"]))
        else:
            damage += _close(stack, tag["name"])
        if damage > MAX_DAMAGE:
            return Element(""), damage
    _add_text(stack[-1], text[position:])
    return root, damage + len(stack) - 1


def _open(stack: list[Element], name: str, *, empty: bool) -> int:
    if len(stack) > MAX_DEPTH:
        return 1
    element = Element(name)
    stack[-1].children.append(element)
    if not empty:
        stack.append(element)
    return 0


def _close(stack: list[Element], name: str) -> int:
    """Close the innermost open element of that name, and what was left open in it."""
    for depth in range(len(stack) - 1, 0, -1):
        if stack[depth].name == name:
            unclosed = len(stack) - 1 - depth
            del stack[depth:]
            return unclosed
    return 1


def _add_text(element: Element, text: str) -> None:
    if not element.children and text and len(element.text) < _MAX_TEXT:
        element.text = unescape(f"{element.text}{text}").strip()


def _document(text: str, *, complete: bool) -> Document:
    head: list[str] = []
    gpus: list[GpuRegion] = []
    position, orphans = 0, 0
    opened: re.Match[str] | None = None
    for tag in _GPU.finditer(text):
        piece = text[position : tag.start()]
        position = tag.end()
        if opened is not None:
            gpus.append(GpuRegion(_gpu_id(opened), piece, closed=bool(tag["end"])))
        elif tag["end"]:
            orphans += 1
            piece = ""
        if opened is None and piece:
            head.append(piece)
        opened = None if tag["end"] else tag
    if opened is not None:
        gpus.append(GpuRegion(_gpu_id(opened), text[position:], closed=False))
    else:
        head.append(text[position:])
    return Document("\n".join(head), tuple(gpus), complete, orphans)


def _gpu_id(tag: re.Match[str]) -> str | None:
    found = _GPU_ID.search(tag["attributes"] or "")
    return found[1] if found else None


def _without_prologue(text: str) -> str:
    """Drop XML declarations and DOCTYPEs, the DTD that ``--dtd`` embeds included."""
    return _without(_PROLOGUE.sub("", text), "<!DOCTYPE", "]>").strip()


def _without_comments(text: str) -> str:
    return _without(text, "<!--", "-->")


def _without(text: str, begin: str, finish: str) -> str:
    kept: list[str] = []
    position = 0
    while (start := text.find(begin, position)) >= 0 and (end := text.find(finish, start)) >= 0:
        kept.append(text[position:start])
        position = end + len(finish)
    return "".join((*kept, text[position:]))


def _with_escaped_names(text: str) -> str:
    """Escape the body of every ``process_name``: users choose it, and nvidia-smi prints it as it is.

    It ends at the last end tag of its line, unless the next name begins before that: a name that holds
    the end tag and more markup costs itself only.
    """
    return "".join(_escaped_pieces(text))


def _escaped_pieces(text: str) -> Iterator[str]:
    position = 0
    while (found := text.find(_PROCESS_NAME, position)) >= 0:
        start = found + len(_PROCESS_NAME)
        end = text.find(_PROCESS_NAME_END, start)
        if end < 0:
            break
        following = text.find(_PROCESS_NAME, start)
        yield text[position:start]
        position = start
        if 0 <= following < end:
            continue
        limit = following if following >= 0 else len(text)
        line_end = text.find("\n", end, limit)
        limit = line_end if line_end >= 0 else limit
        end = text.rfind(_PROCESS_NAME_END, end, limit)
        yield escape(unescape(text[start:end]), quote=False)
        position = end
    yield text[position:]
