"""Slurm's node and job states, of every era, as one model: a base and flags, and the one word they mean.

Sources: sinfo(1), scontrol(1), squeue(1), src/common/slurm_protocol_defs.c (node_state_string and its
compact form), the NODE_STATES and JOB_STATES tables of the data parsers. There is no DRAINED bit: drained
is DRAIN without ALLOCATED, MIXED and COMPLETING.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from fleet.scheduler import NodeState

BASES = frozenset({"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE"})
FLAGS = frozenset(
    {
        "DRAIN",
        "COMPLETING",
        "NOT_RESPONDING",
        "FAIL",
        "MAINTENANCE",
        "RESERVED",
        "PLANNED",
        "BLOCKED",
        "INVALID_REG",
        "REBOOT_REQUESTED",
        "REBOOT_ISSUED",
        "REBOOT_CANCELED",
        "POWER_DOWN",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWER_UP",
        "POWERING_UP",
        "POWER_DRAIN",
        "CLOUD",
        "DYNAMIC_NORM",
        "DYNAMIC_FUTURE",
        "EXTERNAL",
        "UNDRAIN",
        "RESUME",
    }
)
# data_parser's own word for a bit it has no name for: it says nothing about the node.
_NOISE = frozenset({"INVALID"})
_OTHER_SPELLINGS = {"NO_RESPOND": "NOT_RESPONDING", "MAINT": "MAINTENANCE", "RES": "RESERVED"}
_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
# sinfo's words, long (%T) and compact (%t). A word hides bits: `draining` may be ALLOCATED or MIXED.
_WORDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "alloc": ("ALLOCATED", ()),
    "comp": ("IDLE", ("COMPLETING",)),
    "completing": ("IDLE", ("COMPLETING",)),
    "drain": ("IDLE", ("DRAIN",)),
    "drained": ("IDLE", ("DRAIN",)),
    "drng": ("MIXED", ("DRAIN",)),
    "draining": ("MIXED", ("DRAIN",)),
    "err": ("ERROR", ()),
    "fail": ("IDLE", ("FAIL",)),
    "failed": ("IDLE", ("FAIL",)),
    "failg": ("MIXED", ("FAIL",)),
    "failing": ("MIXED", ("FAIL",)),
    "futr": ("FUTURE", ()),
    "inval": ("UNKNOWN", ("INVALID_REG",)),
    "maint": ("IDLE", ("MAINTENANCE",)),
    "mix": ("MIXED", ()),
    "plnd": ("IDLE", ("PLANNED",)),
    "planned": ("IDLE", ("PLANNED",)),
    "block": ("IDLE", ("BLOCKED",)),
    "blocked": ("IDLE", ("BLOCKED",)),
    "resv": ("IDLE", ("RESERVED",)),
    "reserved": ("IDLE", ("RESERVED",)),
    "boot": ("IDLE", ("REBOOT_REQUESTED",)),
    "reboot": ("IDLE", ("REBOOT_REQUESTED",)),
    "unk": ("UNKNOWN", ()),
    "pow_dn": ("IDLE", ("POWERED_DOWN",)),
    "powered_down": ("IDLE", ("POWERED_DOWN",)),
    "power_dn": ("IDLE", ("POWER_DOWN",)),
    "power_down": ("IDLE", ("POWER_DOWN",)),
    "powring_dn": ("IDLE", ("POWERING_DOWN",)),
    "powering_down": ("IDLE", ("POWERING_DOWN",)),
    "pow_up": ("IDLE", ("POWERING_UP",)),
    "power_up": ("IDLE", ("POWERING_UP",)),
    "powering_up": ("IDLE", ("POWERING_UP",)),
    "canc_r": ("IDLE", ("REBOOT_CANCELED",)),
    "resm": ("IDLE", ("RESUME",)),
    "ext": ("IDLE", ("EXTERNAL",)),
}
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})


@dataclass(frozen=True, slots=True)
class NodeStates:
    """``base`` upper case (a word we do not know stays as it was), flags upper case, ``unknown`` words."""

    base: str
    flags: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def word(self) -> NodeState:
        """The contract's one word; the first match wins."""
        return _word(frozenset((self.base, *self.flags)))

    @property
    def busy(self) -> bool:
        """Work may still be on the node."""
        return bool(_BUSY & {self.base, *self.flags})

    @property
    def schedulable(self) -> bool:
        """Slurm may start new work here now (a node that does not answer: nobody knows, so no)."""
        open_for_work = (NodeState.IDLE, NodeState.ALLOCATED, NodeState.MIXED)
        return self.word in open_for_work and "BLOCKED" not in self.flags


@lru_cache(maxsize=1024)
def _word(states: frozenset[str]) -> NodeState:
    busy = bool(_BUSY & states)
    if any(state.startswith("REBOOT_") and state != "REBOOT_CANCELED" for state in states):
        return NodeState.REBOOTING
    if states & {"DOWN", "ERROR"}:
        return NodeState.DOWN
    if any(state.startswith("POWER") for state in states):
        return NodeState.POWERED_DOWN
    if states & {"FUTURE", "UNKNOWN"} or not states & BASES:
        return NodeState.UNKNOWN
    if states & {"DRAIN", "FAIL"}:
        return NodeState.DRAINING if busy else NodeState.DRAINED
    for wanted, word in _LAST_RESORTS:
        if states & wanted:
            return word
    return NodeState.UNKNOWN


_LAST_RESORTS: tuple[tuple[frozenset[str], NodeState], ...] = (
    (frozenset({"NOT_RESPONDING", "INVALID_REG"}), NodeState.UNKNOWN),
    (frozenset({"MAINTENANCE"}), NodeState.MAINTENANCE),
    (frozenset({"RESERVED"}), NodeState.RESERVED),
    (frozenset({"ALLOCATED", "COMPLETING"}), NodeState.ALLOCATED),
    (frozenset({"MIXED"}), NodeState.MIXED),
    (frozenset({"IDLE"}), NodeState.IDLE),
)


def from_list(words: Iterable[str]) -> NodeStates:
    """``["MIXED", "DRAIN"]``: one list in any order. No base in it: unknown, whatever the flags say."""
    base, flags, unknown = "", [], []
    for raw in words:
        word = _OTHER_SPELLINGS.get(raw.strip().upper(), raw.strip().upper())
        if word in BASES:
            base = base or word
        elif word in FLAGS:
            flags.append(word)
        elif word not in _NOISE and word:
            unknown.append(raw.strip())
    return NodeStates(base or "UNKNOWN", tuple(dict.fromkeys(flags)), tuple(unknown))


def is_node_word(text: str) -> bool:
    """True for a word sinfo or scontrol prints as a node state, with or without suffixes."""
    parsed = from_text(text)
    return bool(text.strip()) and not parsed.unknown


def from_text(text: str) -> NodeStates:
    """``IDLE+DRAIN`` (scontrol), ``drained*`` (sinfo), ``DOWN*+DRAIN`` (20.11): base and flags.

    A word nobody knows is kept as the base, so the state is unknown and its raw text is not lost.
    """
    text = text.strip()
    base, flags, unknown = "", [], []
    if text.endswith("+"):  # only after a sinfo word: jobs of the node are completing
        text = text[:-1]
        flags.append("COMPLETING")
    for token in text.split("+"):
        suffixes, word = [], token.strip()
        while word and word[-1] in _SUFFIXES:
            suffixes.append(_SUFFIXES[word[-1]])
            word = word[:-1]
        upper = _OTHER_SPELLINGS.get(word.upper(), word.upper())
        if upper in BASES:
            base = base or upper
        elif word.lower() in _WORDS and not (base and upper in FLAGS):
            of_word, more = _WORDS[word.lower()]
            base = base or of_word
            flags = [*more, *flags]
        elif upper in FLAGS:
            flags.append(upper)
        else:
            unknown.append(token.strip())
        flags.extend(suffixes)
    if "REBOOT_ISSUED" in flags and "REBOOT_REQUESTED" in flags:
        flags.remove("REBOOT_REQUESTED")  # `reboot^`: the word stands for the flag its suffix names
    if unknown:
        return NodeStates(base or unknown[0], tuple(dict.fromkeys(flags)), tuple(unknown))
    return NodeStates(base or "UNKNOWN", tuple(dict.fromkeys(flags)))


# -- jobs ---------------------------------------------------------------------------------------------

ENDED = frozenset(
    {
        "completed",
        "cancelled",
        "failed",
        "timeout",
        "node_fail",
        "preempted",
        "boot_fail",
        "deadline",
        "out_of_memory",
        "launch_failed",
        "reconfig_fail",
        "revoked",
    }
)
_JOB_BASES = frozenset({"pending", "running", "suspended"}) | ENDED
# Bits beside a base (JOB_LAUNCH_FAILED, JOB_RECONFIG_FAIL ...): a pending job can carry them. Alone, sacct's
# text shows them as the state.
_WEAK_FLAGS = ("revoked", "launch_failed", "reconfig_fail", "requeued")
_SILENT_FLAGS = frozenset({"expediting", "power_up_node", "update_db"})
# Flags that squeue shows instead of the base, strongest first (job_state_string).
_SHOWN_FLAGS = (
    "completing",
    "configuring",
    "resizing",
    "requeue_fed",
    "requeue_hold",
    "special_exit",
    "stopped",
    "revoked",
    "resv_del_hold",
    "signaling",
    "stage_out",
)
_COMPACT = {
    "pd": "pending",
    "r": "running",
    "s": "suspended",
    "cg": "completing",
    "cd": "completed",
    "cf": "configuring",
    "ca": "cancelled",
    "f": "failed",
    "to": "timeout",
    "nf": "node_fail",
    "pr": "preempted",
    "bf": "boot_fail",
    "dl": "deadline",
    "oom": "out_of_memory",
    "rq": "requeued",
    "rd": "resv_del_hold",
    "rf": "requeue_fed",
    "rh": "requeue_hold",
    "rs": "resizing",
    "rv": "revoked",
    "se": "special_exit",
    "si": "signaling",
    "so": "stage_out",
    "st": "stopped",
}
_JOB_WORDS = _JOB_BASES | frozenset(_SHOWN_FLAGS) | frozenset(_WEAK_FLAGS)


def job_state_from_list(words: Iterable[str]) -> str | None:
    """One word for a base with its flags; None when nothing in it is known."""
    known = [word.strip().lower() for word in words]
    for flag in _SHOWN_FLAGS:
        if flag in known:
            return flag
    for word in known:
        if word in _JOB_BASES and word not in _WEAK_FLAGS:
            return word
    return next((flag for flag in _WEAK_FLAGS if flag in known), None)


def unknown_job_words(words: Iterable[str]) -> tuple[str, ...]:
    """Those of a list of states that no documentation knows."""
    return tuple(w for w in words if w.strip().lower() not in _JOB_WORDS | _SILENT_FLAGS)


def job_state_from_text(text: str) -> str | None:
    """``RUNNING``, ``R``, ``CANCELLED by 1001``, ``OUT_OF_ME+`` (cut): lower case, or None if unknown."""
    word = text.strip().split(" ")[0].lower()
    if word.endswith("+"):
        word = word[:-1]
        whole = [known for known in _JOB_WORDS if known.startswith(word)]
        return whole[0] if len(whole) == 1 else None
    if word in _JOB_WORDS:
        return word
    return _COMPACT.get(word)
