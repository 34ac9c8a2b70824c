"""Recognise what a Slurm command printed, by content, and read it. Pure: bytes in, records out."""

from __future__ import annotations

import json
import re
from typing import Any

from collector.slurm import json_jobs, json_nodes, scontrol_text, tables
from collector.slurm.records import Findings
from fleet.observations import ProblemReason, Reading

MAX_INPUT_BYTES = 256 * 1024 * 1024
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
_NOT_FOUND = re.compile(r"^(?:Node \S+ not found|.*Invalid (?:node name|job id) specified)", re.MULTILINE)
_DENIED = re.compile(r"invalid user id|access/permission denied|permission denied", re.IGNORECASE)
_EMPTY = re.compile(r"^No (?:jobs|nodes) in the system\s*$")


def read_captured(data: bytes, *, now: float, utc: bool = False) -> Reading:
    """Records of sinfo, squeue or scontrol output, text or JSON, also several JSON documents in a row.

    ``now`` (epoch seconds) is the clock for time left. Text times are local time unless ``utc``. Empty
    input is an empty answer (a good one); an error sentence or ``errors`` without data is not.
    """
    found = Findings(utc=utc)
    if len(data) > MAX_INPUT_BYTES:
        found.fail(ProblemReason.TOO_LARGE, f"more than {MAX_INPUT_BYTES} bytes of Slurm output")
        return found.reading()
    text = data.decode("utf-8", errors="replace")
    if text.lstrip().startswith(("{", "[")):
        _read_documents(text, found, now=now)
    else:
        _read_text(text, found, now=now)
    return found.reading()


def _read_text(text: str, found: Findings, *, now: float) -> None:
    stripped = text.strip()
    if not stripped or _EMPTY.match(stripped):
        return
    if stripped.startswith("NodeName="):
        scontrol_text.read_nodes(stripped, found)
    elif stripped.startswith("JobId="):
        scontrol_text.read_jobs(stripped, found, now=now)
    elif not tables.read_table(text.splitlines(), found):
        _read_sentence(stripped, found)


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
            f"not recognised as output of sinfo, squeue or scontrol; it begins {line[:60]!r}",
        )


def _read_documents(text: str, found: Findings, *, now: float) -> None:
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        try:
            document, position = decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError):
            reason = ProblemReason.TRUNCATED if text[position] in "{[" else ProblemReason.UNREADABLE
            found.fail(reason, f"JSON breaks off or is damaged after byte {position}")
            return
        _read_document(document, found, now=now)


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
    if kind == "nodes":
        json_nodes.read_nodes(items, found)
    elif kind == "sinfo":
        json_nodes.read_grouped(items, found)
    elif kind == "jobs":
        json_jobs.read_jobs(items, found, now=now)
    elif not document.get("errors"):
        keys = ", ".join(sorted(map(str, document))[:6])
        found.fail(
            ProblemReason.UNREADABLE, f"JSON without nodes, sinfo or jobs; its keys are {keys or 'none'}"
        )


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
