"""Whose cordon it is, when the fields' managers are known."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from collector.kubernetes.marks import (
    CORDONED_BY_US,
    INCIDENT,
    PRIOR_STATE,
    RULE,
    SENTENCE,
    owner_of,
    reason_of,
)
from collector.kubernetes.objects import NodeObject
from fleet.marks import Mark
from fleet.scheduler import Owner

OURS = {
    INCIDENT: "inc-1",
    RULE: "gpu-xid",
    CORDONED_BY_US: "inc-1",
    PRIOR_STATE: "schedulable",
    SENTENCE: "Off the bus.",
}
MARKED = {"f:metadata": {"f:annotations": {f"f:{CORDONED_BY_US}": {}}}}
BIT = {"f:spec": {"f:unschedulable": {}}}


def make(annotations: dict[str, str], *managers: tuple[str, Any], cordoned: bool = True) -> NodeObject:
    fields = [{"manager": name, "operation": "Update", "fieldsV1": owned} for name, owned in managers]
    document = {
        "metadata": {"name": "w1", "annotations": annotations, "managedFields": fields},
        "spec": {"unschedulable": cordoned},
    }
    return msgspec.json.decode(json.dumps(document).encode(), type=NodeObject)


@pytest.mark.parametrize(
    ("node", "owner"),
    [
        (make(OURS), Owner.SICKBAY),  # managed fields were stripped: the marks speak
        (make(OURS, ("sickbay", {**MARKED, **BIT})), Owner.SICKBAY),
        (make(OURS, ("sickbay", MARKED), ("kubectl-cordon", BIT)), Owner.FOREIGN),
        (make(OURS, cordoned=False), Owner.NONE),
        (make({}, ("kubectl-cordon", BIT)), Owner.FOREIGN),
        (make({**OURS, PRIOR_STATE: "cordoned"}), Owner.FOREIGN),
        (make({**OURS, CORDONED_BY_US: "inc-2"}), Owner.FOREIGN),  # the marks contradict each other
        (make({**OURS, INCIDENT: "in c", CORDONED_BY_US: "in c"}), Owner.FOREIGN),  # no mark we would write
        (make(OURS, ("sickbay", "nonsense"), ("x", {"f:spec": "f:unschedulable"})), Owner.SICKBAY),
    ],
)
def test_owner(node: NodeObject, owner: Owner) -> None:
    assert owner_of(node) is owner


def test_our_reason_reads_as_our_mark_and_names_us() -> None:
    reason = reason_of(make(OURS, ("sickbay", {**MARKED, **BIT})))

    assert reason is not None
    assert (reason.text, reason.user) == (Mark("inc-1", "gpu-xid", "Off the bus.").reason(), "sickbay")


def test_a_foreign_reason_that_imitates_our_mark_does_not_read_as_ours() -> None:
    words = {"nodeset.slinky.slurm.net/node-cordon-reason": "sickbay:inc-1:gpu-xid mine"}
    reason = reason_of(make(words, ("kubectl-cordon", BIT)))

    assert reason is not None
    assert not Mark("inc-1", "gpu-xid").owns(reason.text)
    assert reason.user == "kubectl-cordon"
