"""Node and job states of every era."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.slurm.states import (
    BASES,
    FLAGS,
    from_list,
    from_text,
    job_state_from_list,
    job_state_from_text,
)
from fleet.scheduler import NodeState

S = NodeState


@pytest.mark.parametrize(
    ("text", "base", "flags", "word", "schedulable"),
    [
        ("IDLE+DRAIN", "IDLE", {"DRAIN"}, S.DRAINED, False),
        ("MIXED+DRAIN", "MIXED", {"DRAIN"}, S.DRAINING, False),
        ("ALLOCATED+DRAIN", "ALLOCATED", {"DRAIN"}, S.DRAINING, False),
        ("IDLE+DRAIN+COMPLETING", "IDLE", {"DRAIN", "COMPLETING"}, S.DRAINING, False),
        (
            "IDLE+RESERVED+DRAIN+MAINTENANCE",
            "IDLE",
            {"RESERVED", "DRAIN", "MAINTENANCE"},
            S.DRAINED,
            False,
        ),
        ("DOWN*+DRAIN", "DOWN", {"NOT_RESPONDING", "DRAIN"}, S.DOWN, False),
        ("REBOOT*+DRAIN", "IDLE", {"REBOOT_REQUESTED", "NOT_RESPONDING", "DRAIN"}, S.REBOOTING, False),
        ("DOWN+DRAIN+REBOOT_ISSUED", "DOWN", {"DRAIN", "REBOOT_ISSUED"}, S.REBOOTING, False),
        ("IDLE+CLOUD+POWERED_DOWN", "IDLE", {"CLOUD", "POWERED_DOWN"}, S.POWERED_DOWN, False),
        ("MIXED+PLANNED", "MIXED", {"PLANNED"}, S.MIXED, True),
        ("IDLE+RESERVED", "IDLE", {"RESERVED"}, S.RESERVED, False),
        ("ALLOCATED+FAIL", "ALLOCATED", {"FAIL"}, S.DRAINING, False),
        ("ERROR", "ERROR", set(), S.DOWN, False),
        ("drng@", "MIXED", {"DRAIN", "REBOOT_REQUESTED"}, S.REBOOTING, False),
        ("boot^", "IDLE", {"REBOOT_ISSUED"}, S.REBOOTING, False),
        ("failg*", "MIXED", {"FAIL", "NOT_RESPONDING"}, S.DRAINING, False),
        ("pow_dn", "IDLE", {"POWERED_DOWN"}, S.POWERED_DOWN, False),
        ("plnd", "IDLE", {"PLANNED"}, S.IDLE, True),
        ("comp*", "IDLE", {"COMPLETING", "NOT_RESPONDING"}, S.UNKNOWN, False),
        ("unk", "UNKNOWN", set(), S.UNKNOWN, False),
    ],
)
def test_node_state_words(text: str, base: str, flags: set[str], word: NodeState, schedulable: bool) -> None:
    states = from_text(text)

    assert (states.base, set(states.flags)) == (base, flags)
    assert (states.word, states.schedulable) == (word, schedulable)
    assert states.unknown == ()


def test_an_unknown_word_is_kept_and_unknown() -> None:
    states = from_text("zzz?")

    assert (states.base, states.unknown) == ("zzz?", ("zzz?",))
    assert states.word is NodeState.UNKNOWN
    assert not states.schedulable


@pytest.mark.parametrize("words", [[], ["DRAIN"], ["INVALID"], ["SOMETHING_NEW"]])
def test_a_list_without_a_base_is_unknown(words: list[str]) -> None:
    assert from_list(words).word is NodeState.UNKNOWN


def test_a_placeholder_is_ignored_and_a_new_flag_is_reported() -> None:
    states = from_list(["IDLE", "DRAIN", "INVALID", "SANITISING"])

    assert states.flags == ("DRAIN",)
    assert states.unknown == ("SANITISING",)


@given(st.lists(st.sampled_from(sorted(BASES | FLAGS)), max_size=6))
def test_the_order_of_a_list_does_not_matter_for_flags(words: list[str]) -> None:
    bases = [word for word in words if word in BASES][:1]
    flags = [word for word in words if word in FLAGS]

    assert from_list([*bases, *flags]).word is from_list([*reversed(flags), *bases]).word


@given(st.lists(st.sampled_from(sorted(FLAGS)), max_size=5))
def test_nothing_with_a_drain_is_schedulable(flags: list[str]) -> None:
    for base in BASES:
        states = from_list([base, *flags, "DRAIN"])
        assert not states.schedulable
        assert states.word not in (NodeState.IDLE, NodeState.ALLOCATED, NodeState.MIXED)


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["RUNNING"], "running"),
        (["COMPLETED", "COMPLETING"], "completing"),
        (["COMPLETING", "CANCELLED"], "completing"),
        (["NODE_FAIL", "REQUEUED"], "node_fail"),
        (["REQUEUED", "NODE_FAIL"], "node_fail"),
        (["RUNNING", "CONFIGURING"], "configuring"),
        (["PENDING", "REQUEUED"], "pending"),
        (["OF_THE_FUTURE"], None),
        ([], None),
    ],
)
def test_job_state_lists(words: list[str], state: str | None) -> None:
    assert job_state_from_list(words) == state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("RUNNING", "running"),
        ("R", "running"),
        ("CG", "completing"),
        ("SE", "special_exit"),
        ("CANCELLED by 1001", "cancelled"),
        ("CANCELLED+", "cancelled"),
        ("OUT_OF_ME+", "out_of_memory"),
        ("what", None),
    ],
)
def test_job_state_words(text: str, state: str | None) -> None:
    assert job_state_from_text(text) == state
