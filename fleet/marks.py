"""The marks we leave in a scheduler, written and recognised in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass

_REASON = re.compile(r"^sickbay:(?P<incident>[A-Za-z0-9-]{1,64}):(?P<rule>[a-z0-9-]{1,64})(?:\s|$)")
# Slurm appends these to a reason during a reboot (scontrol(1); measured on 22.05 and 24.11).
_SLURM_REBOOT_SUFFIX = re.compile(r"(?: : reboot (?:issued|complete|timed out|requested))+$")
MAX_REASON_CHARS = 250


@dataclass(frozen=True, slots=True)
class Mark:
    """Our claim on a node: which incident, which rule, and one short sentence for people."""

    incident: str
    rule: str
    sentence: str = ""

    def reason(self) -> str:
        """``sickbay:<incident-id>:<rule-id> <one short sentence>``, one line, bounded."""
        sentence = " ".join(self.sentence.split())
        return f"sickbay:{self.incident}:{self.rule} {sentence}".strip()[:MAX_REASON_CHARS]

    def owns(self, reason_text: str | None) -> bool:
        """True if the reason is this very incident's mark (Slurm's reboot suffix is allowed)."""
        found = parse_mark(reason_text)
        return found is not None and found.incident == self.incident and found.rule == self.rule


def parse_mark(reason_text: str | None) -> Mark | None:
    """The mark in a scheduler's reason, or None: anything that is not exactly ours is foreign."""
    if not reason_text:
        return None
    match = _REASON.match(reason_text)
    if match is None:
        return None
    sentence = _SLURM_REBOOT_SUFFIX.sub("", reason_text[match.end() :])
    return Mark(match["incident"], match["rule"], sentence.strip())


def comment_note(incident: str, sentence: str) -> str:
    """What we write beside a foreign drain: ``sickbay: <incident-id> observed ...``."""
    return f"sickbay: {incident} observed {' '.join(sentence.split())}"[:MAX_REASON_CHARS]
