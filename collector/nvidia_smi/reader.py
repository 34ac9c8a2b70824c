"""Recognise what nvidia-smi printed, by content, and read it. Pure: bytes in, records out."""

from __future__ import annotations

from collections.abc import Sequence

from collector.nvidia_smi import plain_text, xml_text
from collector.nvidia_smi.cells import decode
from collector.nvidia_smi.csv_reader import parse_header, read_csv, requested_header
from collector.nvidia_smi.records import Findings
from collector.nvidia_smi.sentences import read_sentences
from collector.nvidia_smi.xml_reader import read_xml
from fleet.observations import ProblemReason, Reading

MAX_INPUT_BYTES = 32 * 1024 * 1024
_MAX_LINES = 500_000


def read_nvidia_smi(
    data: bytes,
    *,
    node: str | None,
    now: float,
    returncode: int | None = None,
    args: Sequence[str] | None = None,
    own_time: bool = True,
) -> Reading:
    """Samples (base units), processes and problems of one output of ``nvidia-smi`` on ``node``.

    Understood: XML of ``-q -x`` (drivers 418 to 610, also several documents in a row: the newest complete
    one counts), CSV of ``--query-gpu``, ``--query-remapped-rows``, ``--query-compute-apps`` and
    ``--query-retired-pages``, ``--version``, and error sentences, alone or beside data. The table for
    people is refused; its ``ERR!`` cells are reported.

    ``now`` (epoch seconds) dates records whose output prints no time, and all when ``own_time`` is False
    (a live read). ``args`` is the command line, for CSV without a header. ``returncode`` decides nothing
    by itself: it differs between driver generations. Never raises for what is in ``data``: what cannot be
    used is a problem, "not supported" is not. ``ok`` is False when nothing was an answer.
    """
    found = Findings(node=node, time=now)
    if len(data) > MAX_INPUT_BYTES:
        found.problem(ProblemReason.TOO_LARGE, f"more than {MAX_INPUT_BYTES} bytes; not read")
        return found.reading()
    _read(decode(data), found, args=args, own_time=own_time)
    _judge_returncode(returncode, found)
    return found.reading()


def _read(text: str, found: Findings, *, args: Sequence[str] | None, own_time: bool) -> None:
    if not text.strip():
        found.problem(ProblemReason.UNREADABLE, "nvidia-smi printed nothing")
        return
    prepared = xml_text.prepare(text)
    if xml_text.looks_like_xml(prepared):
        read_xml(prepared, found, own_time=own_time, one_gpu=_names_gpus(args))
        if not found.understood and not found.problems:
            plain_text.refuse(text, found)
        return
    lines = text.splitlines()
    if len(lines) > _MAX_LINES:
        found.problem(ProblemReason.TOO_LARGE, f"more than {_MAX_LINES} lines; not read")
    elif plain_text.looks_like_table(text):
        plain_text.refuse_table(read_sentences(lines, found), found)
    elif not plain_text.read_versions(lines, found):
        _read_lines(text, lines, found, args=args, own_time=own_time)


def _read_lines(
    text: str, lines: Sequence[str], found: Findings, *, args: Sequence[str] | None, own_time: bool
) -> None:
    requested = requested_header(args)
    if requested is not None or any(parse_header(line) for line in lines):
        read_csv(lines, found, header=requested, own_time=own_time, ended=text.endswith("\n"))
        return
    rest = [line for line in read_sentences(lines, found) if line.strip()]
    if rest:
        plain_text.refuse("\n".join(rest), found)


def _names_gpus(args: Sequence[str] | None) -> bool:
    return any(arg in ("-i", "--id") or arg.startswith(("-i=", "--id=")) for arg in args or ())


def _judge_returncode(returncode: int | None, found: Findings) -> None:
    """A bad exit that no sentence explains: a part may be missing (14: a warning about the infoROM)."""
    if returncode and not found.problems:
        how = f"was ended by signal {-returncode}" if returncode < 0 else f"ended with status {returncode}"
        found.problem(ProblemReason.PARTIAL, f"nvidia-smi {how} and does not say why; a part may be missing")
