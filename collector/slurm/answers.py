"""What an answer of a Slurm command means. Texts: src/common/slurm_errno.c, scontrol's own sentences.

An exit code alone proves nothing: 22.05 exits 0 with an empty list while its controller is down, wrappers
print errors on standard output, and a warning on standard error is no failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from collector.slurm.reader import UNREACHABLE


class AnswerKind(StrEnum):
    """OK; VERIFY: the state must be read back to know; the rest are the errors of fleet.errors."""

    OK = "ok"
    VERIFY = "verify"
    UNAVAILABLE = "unavailable"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """``text`` is what Slurm said, one line, for people. ``stdout`` is empty unless the kind is OK."""

    kind: AnswerKind
    text: str = ""
    stdout: bytes = b""


_TABLE: tuple[tuple[AnswerKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (AnswerKind.FORBIDDEN, r"invalid user id|access/permission denied|permission denied|not authorized"),
        (
            AnswerKind.NOT_FOUND,
            r"invalid node name|node \S+ not found|invalid job id|job \S+ not found|no matching (?:node|job)",
        ),
        (
            AnswerKind.VERIFY,
            r"invalid node state specified|already in the requested state|no longer pending execution"
            r"|job is pending execution|already completing or completed|job has already finished",
        ),
        (
            AnswerKind.REFUSED,
            r"requested operation is presently disabled|only batch jobs are accepted|must specify a reason"
            r"|not heterogeneous job leader|requested operation not supported|does not accept"
            r"|requested node configuration is not available|requested nodes are busy",
        ),
    )
)
# At the start of standard output, in an answer that claims to be a success.
_SENTENCE_FOR_DATA = re.compile(
    r"^\s*(?:slurm_\w+(?: error)?: |(?:sinfo|squeue|scontrol): (?:error|fatal): )"
)
_SHOWN = 200


def classify(rc: int, stdout: bytes, stderr: bytes) -> Answer:
    """Partial output of a failed command is dropped: half a list is not a list."""
    out, err = (part[:65536].decode("utf-8", errors="replace") for part in (stdout, stderr))
    said = " ".join(f"{err}\n{out if rc != 0 or len(out) < _SHOWN else ''}".split())[:_SHOWN]
    if rc == 0:
        if _SENTENCE_FOR_DATA.match(out) or (not out.strip() and UNREACHABLE.search(err)):
            return Answer(AnswerKind.UNAVAILABLE, said)
        return Answer(AnswerKind.OK, said, stdout)
    everything = f"{err}\n{out}"
    if UNREACHABLE.search(everything):
        return Answer(AnswerKind.UNAVAILABLE, said)
    for kind, pattern in _TABLE:
        if pattern.search(everything):
            return Answer(kind, said)
    return Answer(AnswerKind.UNAVAILABLE, said or f"exit status {rc} without a word")
