"""Recognise what a Slurm command printed, by content, and read it. Pure: bytes in, records out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from collector.slurm import json_jobs, json_nodes, json_sacct, scontrol_text, sdiag, tables
from collector.slurm.blocks import BlockKind, blocks
from collector.slurm.json_items import decode_records
from collector.slurm.records import Findings
from fleet.observations import ProblemReason, Reading

# 50,000 jobs of 24.11 are 430 MB.
MAX_INPUT_BYTES = 1024 * 1024 * 1024
UNREACHABLE = re.compile(
    r"unable to contact slurm controller|socket timed out|zero bytes were transmitted|connection refused"
    r"|backup controller|standby mode|unable to establish|resolve_ctls_from_dns_srv"
    r"|protocol authentication error|failed while looking for"
    r"|communication (?:connection|shutdown) failure|unspecified error",
    re.IGNORECASE,
)
_ERROR_SENTENCE = re.compile(
    r"^(?:slurm_\w+(?: error)?: |(?:sinfo|squeue|scontrol|sacct): (?:error|fatal): |\w+ error: )",
    re.MULTILINE,
)
_HINTS = (
    ("%YAML", "YAML is not read; use --json"),
    ("---", "YAML is not read; use --json"),
    ("StepId=", "steps say nothing about a job's state; use scontrol show job"),
    ("STEPID", "steps say nothing about a job's state; use squeue without -s"),
    ("PARTITION", "a summary does not say which node is in which state; use sinfo -N -o '%N|%T|%P|%G'"),
    ("PartitionName=", "partitions hold no nodes' states; use scontrol show node"),
)
_NOT_FOUND = re.compile(
    r"^(?:Node \S+ not found|Unable find requested URL|.*Invalid (?:node name|job id) specified)",
    re.MULTILINE,
)
_DENIED = re.compile(
    r"^authentication failure|invalid user id|access/permission denied|permission denied", re.IGNORECASE
)
_CLUSTER = re.compile(r"^CLUSTER: \S+\s*$")
_PING = re.compile(r"^Slurmctld\([^)]*\) at (\S+) (?:is|are) (UP|DOWN)\s*$", re.MULTILINE)
_JSON_START = re.compile(r"^(?:(?<=(\n)\n))?\{(?=\s*\")", re.MULTILINE)
_EMPTY = re.compile(r"^No (?:jobs|nodes) in the system\s*$")


def read_captured(data: bytes, *, now: float, utc: bool = False) -> Reading:
    """Records of sinfo, squeue, scontrol, sacct or sdiag output, text or JSON, also several in a row.

    ``now`` (epoch seconds) is the clock for time left. Text times are local time unless ``utc``. Empty
    input is an empty answer (a good one); an error sentence or ``errors`` without data is not.
    """
    found = Findings(utc=utc)
    if len(data) > MAX_INPUT_BYTES:
        found.fail(ProblemReason.TOO_LARGE, f"more than {MAX_INPUT_BYTES} bytes of Slurm output")
        return found.reading()
    if not _read_whole_document(data, found, now=now):
        _read_parts(data.decode("utf-8", errors="replace").lstrip("\ufeff"), found, now=now)
    return found.reading()


def _read_whole_document(data: bytes, found: Findings, *, now: float) -> bool:
    """One sound JSON document, the usual case, by the fast decoder. False: look closer."""
    if data[:64].lstrip()[:1] != b"{":
        return False
    records = decode_records(data)
    if records is not None:
        _read_errors(records.errors, found, empty=not records)
        _read_list(records.kind, records, found, now=now)
    return records is not None


def _read_parts(text: str, found: Findings, *, now: float) -> None:
    """JSON documents and text, in any order. JSON begins a line, after a blank one or after sentences."""
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
        elif text[position] in "{[":
            after = _read_json(text, position, found, now=now)
            if after is None:
                return
            position = after
        else:
            end = _end_of_text(text, position)
            _read_text(text[position:end], found, now=now)
            position = end


def _end_of_text(text: str, start: int) -> int:
    for match in _JSON_START.finditer(text, start):
        before = text[start : match.start()].rstrip("\n").split("\n")
        if match[1] or all(_ERROR_SENTENCE.match(line) or _CLUSTER.match(line) for line in before):
            return match.end() - 1
    return len(text)


def _read_json(text: str, position: int, found: Findings, *, now: float) -> int | None:
    try:
        document, after = json.JSONDecoder().raw_decode(text, position)
    except (json.JSONDecodeError, RecursionError):
        found.fail(ProblemReason.TRUNCATED, f"JSON breaks off or is damaged after byte {position}")
        return None
    _read_document(document, found, now=now)
    return after


def _read_text(text: str, found: Findings, *, now: float) -> None:
    for block in blocks(text):
        _read_block(block.kind, block.text, found, now=now)


def _read_block(kind: BlockKind, text: str, found: Findings, *, now: float) -> None:
    stripped = text.strip()
    if not stripped or _EMPTY.match(stripped):
        return
    if kind is BlockKind.NODES:
        scontrol_text.read_nodes(stripped, found)
    elif kind is BlockKind.JOBS:
        scontrol_text.read_jobs(stripped, found, now=now)
    elif kind is BlockKind.SDIAG:
        sdiag.read_text(text, found, now=now)
    elif ping := _PING.findall(stripped):
        _read_ping([(host, answer == "UP") for host, answer in ping], found)
    elif not tables.read_table(text.split("\n"), found, now=now):
        _read_sentence(stripped, found)


def _read_ping(answers: list[tuple[str, bool]], found: Findings) -> None:
    """``scontrol ping``: one controller that answers is enough."""
    if answers and not any(up for _, up in answers):
        hosts = ", ".join(host for host, _ in answers)[:100]
        found.fail(ProblemReason.CONTROLLER_UNREACHABLE, f"no Slurm controller answers: {hosts}")


def _read_sentence(text: str, found: Findings) -> None:
    """A sentence instead of data is a failed read, whatever the exit code said."""
    line = next((line for line in text.splitlines() if _ERROR_SENTENCE.match(line)), text.splitlines()[0])[
        :200
    ]
    if UNREACHABLE.search(text):
        found.fail(ProblemReason.CONTROLLER_UNREACHABLE, f"the Slurm controller did not answer: {line}")
    elif _DENIED.search(text):
        found.fail(ProblemReason.PERMISSION_DENIED, f"Slurm refused the read: {line}")
    elif _NOT_FOUND.search(text) or _ERROR_SENTENCE.search(text):
        found.fail(ProblemReason.QUERY_ERROR, f"Slurm answered with an error: {line}")
    else:
        found.fail(
            ProblemReason.UNREADABLE,
            f"not recognised as output of sinfo, squeue, scontrol, sacct or sdiag; it begins {line[:60]!r}"
            + next((f" ({hint})" for start, hint in _HINTS if text.startswith(start)), ""),
        )


def _read_document(document: Any, found: Findings, *, now: float) -> None:
    if isinstance(document, list):
        for item in document:
            _read_document(item, found, now=now)
        return
    if not isinstance(document, dict):
        found.fail(ProblemReason.UNREADABLE, "a JSON document that is no object")
        return
    kind = next((key for key in ("nodes", "sinfo", "jobs") if isinstance(document.get(key), list)), None)
    items = document[kind] if kind else []
    _read_errors(document.get("errors"), found, empty=not items)
    if kind is not None:
        _read_list(kind, items, found, now=now)
    elif isinstance(document.get("statistics"), dict):
        sdiag.read_json(document["statistics"], found, now=now)
    elif isinstance(document.get("pings"), list):
        _read_ping(_pings(document["pings"]), found)
    elif not document.get("errors"):
        keys = ", ".join(sorted(map(str, document))[:6])
        found.fail(
            ProblemReason.UNREADABLE, f"JSON without nodes, sinfo or jobs; its keys are {keys or 'none'}"
        )


def _read_list(kind: str, items: Iterable[Any], found: Findings, *, now: float) -> None:
    if kind == "nodes":
        json_nodes.read_nodes(items, found)
    elif kind == "sinfo":
        json_nodes.read_grouped(list(items), found)
    else:
        accounting: list[Any] = []
        json_jobs.read_jobs(_without_accounting(items, accounting), found, now=now)
        json_sacct.read_jobs(accounting, found, now=now)


def _without_accounting(items: Iterable[Any], accounting: list[Any]) -> Iterator[Any]:
    """The jobs of squeue and scontrol one by one; those of sacct, to be seen whole, are put aside."""
    for item in items:
        if json_sacct.is_accounting(item):
            accounting.append(item)
        else:
            yield item


def _pings(items: list[Any]) -> list[tuple[str, bool]]:
    return [
        (
            str(item.get("hostname")),
            item.get("pinged", item.get("ping")) in ("UP", 0) or item.get("responding") is True,
        )
        for item in items
        if isinstance(item, dict)
    ]


def _read_errors(errors: Any, found: Findings, *, empty: bool) -> None:
    """``errors`` beside data: partial; instead of data: failed. 22.05 exits 0 with an empty list then."""
    if not isinstance(errors, list) or not errors:
        return
    texts = [
        str(error.get("description") or error.get("error") or error)
        if isinstance(error, dict)
        else str(error)
        for error in errors
    ]
    message = "; ".join(texts)[:200]
    if not empty:
        found.problem(ProblemReason.PARTIAL, f"Slurm reports errors beside its answer: {message}")
    elif UNREACHABLE.search(" ".join(texts)):
        found.fail(ProblemReason.CONTROLLER_UNREACHABLE, f"the Slurm controller did not answer: {message}")
    else:
        found.fail(ProblemReason.QUERY_ERROR, f"Slurm answered with an error: {message}")
