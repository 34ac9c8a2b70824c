"""What the Slurm backend decides and sends. The same backend runs on real clusters in tests/contract."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.process import Completed
from collector.slurm.client import SlurmClient
from fleet.clock import ManualClock
from fleet.errors import BackendError, ConflictError, NotFoundError, RefusedError, UnavailableError
from fleet.marks import Mark
from fleet.scheduler import (
    JobKind,
    JobRecord,
    NodeRecord,
    NodeState,
    Owner,
    Reason,
    RequeueRequest,
    RequeueState,
)
from remediator.backends.slurm import SlurmBackend
from remediator.backends.slurm_nodes import is_ours, why_not_cordon, why_not_uncordon, with_owner
from remediator.backends.slurm_requeue import Next, decide, leader_of

MARK = Mark("inc-7", "gpu-xid", "GPU 3 fell off the bus.")
NOW = 1_767_225_600.0
CASES = Path(__file__).parents[2] / "data" / "slurm" / "cases"


# -- a stand-in for Slurm's programs ------------------------------------------------------------------


class FakeSlurm:
    """One node and one job as 22.05 prints them; ``on_write`` says what a write changes."""

    def __init__(self, node: dict[str, Any] | None = None, jobs: Sequence[dict[str, Any]] = ()) -> None:
        self.node: dict[str, Any] = {"name": "n1", "state": "idle", "state_flags": [], **(node or {})}
        self.jobs = list(jobs)
        self.writes: list[tuple[str, ...]] = []
        self.on_write: Callable[[FakeSlurm, tuple[str, ...]], tuple[int, str, str]] = apply_write

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float) -> Completed:
        del env, timeout_seconds
        rc, out, err = self._answer(tuple(argv))
        return Completed(tuple(argv), rc, out.encode(), err.encode(), 0.0)

    def _answer(self, argv: tuple[str, ...]) -> tuple[int, str, str]:
        if "--version" in argv:
            return 0, "slurm-wlm 22.05.8", ""
        if argv[0] == "sinfo":
            return 0, json.dumps({"nodes": [self.node], "errors": []}), ""
        if argv[0] == "squeue":
            return 0, json.dumps({"jobs": self.jobs, "errors": []}), ""
        self.writes.append(argv)
        return self.on_write(self, argv)


def apply_write(slurm: FakeSlurm, argv: tuple[str, ...]) -> tuple[int, str, str]:
    """What slurmctld does with the node writes of this backend."""
    pairs = dict(part.split("=", 1) for part in argv if "=" in part)
    if pairs.get("State") == "DRAIN":
        slurm.node["state_flags"] = ["DRAIN"]
        slurm.node.update(reason=pairs["Reason"], reason_set_by_user="sickbay", reason_changed_at=int(NOW))
    if pairs.get("State") == "UNDRAIN":
        slurm.node.update(state_flags=[], reason="")
    if "Comment" in pairs:
        slurm.node["comment"] = pairs["Comment"]
    if argv[1] == "reboot":
        slurm.node["state_flags"] = ["DRAIN", "REBOOT_REQUESTED"]
    return 0, "", ""


def backend(slurm: FakeSlurm, *, our_user: str | None = "sickbay") -> SlurmBackend:
    clock = ManualClock(NOW)
    client = SlurmClient(env={}, clock=clock, runner=slurm, base_env={}, read_rpc_per_second=1000.0)
    return SlurmBackend(client, clock, our_user=our_user)


def drained(reason: str, *, user: str = "sickbay", at: float = NOW - 60, **more: Any) -> dict[str, Any]:
    return {
        "state_flags": ["DRAIN"],
        "reason": reason,
        "reason_set_by_user": user,
        "reason_changed_at": int(at),
        **more,
    }


# -- nodes --------------------------------------------------------------------------------------------


def test_cordon_sends_one_node_one_state_one_reason() -> None:
    slurm = FakeSlurm()

    record = backend(slurm).cordon("n1", MARK)

    assert slurm.writes == [("scontrol", "update", "NodeName=n1", "State=DRAIN", f"Reason={MARK.reason()}")]
    assert (record.owner, record.state) == (Owner.SICKBAY, NodeState.DRAINED)


@pytest.mark.parametrize(
    "node",
    [
        drained("ADMIN: chassis swap", user="root"),
        drained("sickbay:inc-9:gpu-xid other incident"),
        drained(MARK.reason(), user="ops2"),
        {"state_flags": ["FAIL"], "reason": "vendor", "reason_set_by_user": "root"},
        {"state_flags": ["REBOOT_REQUESTED"]},
        {"state_flags": ["DRAIN", "REBOOT_REQUESTED"], "reason": "Reboot ASAP", "reason_set_by_user": "ops1"},
        {"state_flags": ["MAINTENANCE"]},
        {"state_flags": ["RESERVED"]},
        {"state_flags": ["POWERING_UP"], "state": "allocated"},
        {"state_flags": ["POWERED_DOWN", "CLOUD"]},
        {"state": "future"},
        {"state": "unknown"},
        {"state": "down", "reason": "chassis", "reason_set_by_user": "root"},
        {"state_flags": ["DRAIN", "INVALID_REG"], "reason": "gres/gpu count reported lower"},
    ],
)
def test_what_somebody_else_holds_is_not_written(node: dict[str, Any]) -> None:
    slurm = FakeSlurm(node)

    calls: tuple[Callable[[], NodeRecord], ...] = (
        lambda: backend(slurm).cordon("n1", MARK),
        lambda: backend(slurm).reboot("n1", MARK, ordered_at=NOW),
    )
    for call in calls:
        with pytest.raises((ConflictError, UnavailableError)) as caught:
            call()
        assert "n1" in str(caught.value)
    if slurm.node["state_flags"] and "DRAIN" in slurm.node["state_flags"]:
        with pytest.raises(ConflictError):
            backend(slurm).uncordon("n1", MARK)
    assert slurm.writes == []


@pytest.mark.parametrize(
    "node",
    [
        {"state": "mixed", "state_flags": ["PLANNED"]},
        {
            "state": "down",
            "state_flags": ["NOT_RESPONDING"],
            "reason": "Not responding",
            "reason_set_by_user": "root",
        },
        {"state_flags": ["NOT_RESPONDING"]},
        {"state_flags": ["COMPLETING"]},
        {"reason": "an old text that 24.11 keeps", "reason_set_by_user": "root"},
    ],
)
def test_a_node_that_nobody_holds_is_drained(node: dict[str, Any]) -> None:
    slurm = FakeSlurm(node)

    assert backend(slurm).cordon("n1", MARK).owner is Owner.SICKBAY


def test_a_second_writer_wins_and_is_told() -> None:
    def overwritten(slurm: FakeSlurm, argv: tuple[str, ...]) -> tuple[int, str, str]:
        apply_write(slurm, argv)
        slurm.node.update(reason="NHC: watchdog", reason_set_by_user="root")
        return 0, "", ""

    slurm = FakeSlurm()
    slurm.on_write = overwritten

    with pytest.raises(ConflictError, match="NHC: watchdog"):
        backend(slurm).cordon("n1", MARK)


@pytest.mark.parametrize("answer", [(0, "", ""), (1, "", "slurm_update error: Invalid node state specified")])
def test_a_write_without_effect_is_not_believed(answer: tuple[int, str, str]) -> None:
    slurm = FakeSlurm()
    slurm.on_write = lambda _slurm, _argv: answer

    with pytest.raises(UnavailableError, match="read it again"):
        backend(slurm).cordon("n1", MARK)


@pytest.mark.parametrize("flag", ["REBOOT_ISSUED", "NOT_RESPONDING", "INVALID_REG", "MAINTENANCE", "FAIL"])
def test_a_node_that_is_not_well_is_not_returned(flag: str) -> None:
    node = drained(MARK.reason())
    node["state_flags"] = ["DRAIN", flag]
    slurm = FakeSlurm(node)

    with pytest.raises(ConflictError):
        backend(slurm).uncordon("n1", MARK)
    assert slurm.writes == []


def test_slurms_reboot_suffix_leaves_the_mark_ours() -> None:
    slurm = FakeSlurm(drained(f"{MARK.reason()} : reboot issued"))

    assert not backend(slurm).uncordon("n1", MARK).is_cordoned
    assert slurm.writes == [("scontrol", "update", "NodeName=n1", "State=UNDRAIN")]


def test_a_reboot_is_plain_and_ordered_once() -> None:
    slurm = FakeSlurm(drained(MARK.reason()))

    backend(slurm).reboot("n1", MARK, ordered_at=NOW)
    backend(slurm).reboot("n1", MARK, ordered_at=NOW)

    assert slurm.writes == [("scontrol", "reboot", "n1")]


def test_a_reboot_issued_since_the_order_is_this_one() -> None:
    slurm = FakeSlurm(drained(f"{MARK.reason()} : reboot issued", at=NOW + 5))

    backend(slurm).reboot("n1", MARK, ordered_at=NOW)

    assert slurm.writes == []


def test_a_second_reboot_first_writes_the_mark_anew() -> None:
    slurm = FakeSlurm(drained(f"{MARK.reason()} : reboot issued", at=NOW - 3600))

    backend(slurm).reboot("n1", MARK, ordered_at=NOW)

    assert [write[1] for write in slurm.writes] == ["update", "reboot"]
    assert slurm.node["reason"] == MARK.reason()


def test_a_reboot_that_slurm_ignores_politely_is_unavailable() -> None:
    slurm = FakeSlurm(drained(MARK.reason()))
    slurm.on_write = lambda _slurm, _argv: (0, "", "Ignoring reboot request for n1")

    with pytest.raises(UnavailableError, match="Ignoring reboot"):
        backend(slurm).reboot("n1", MARK, ordered_at=NOW)


@pytest.mark.parametrize("state", ["allocated", "mixed"])
def test_a_busy_node_is_not_rebooted(state: str) -> None:
    slurm = FakeSlurm(drained(MARK.reason(), state=state))

    with pytest.raises(ConflictError, match="still has work"):
        backend(slurm).reboot("n1", MARK, ordered_at=NOW)
    assert slurm.writes == []


def test_a_note_goes_into_the_comment_and_over_nobodys_words() -> None:
    slurm = FakeSlurm(drained("bad dimm", user="root"))
    backend(slurm).annotate("n1", "sickbay: inc-7 observed XID 79")
    backend(slurm).annotate("n1", "sickbay: inc-7 observed XID 79")
    assert slurm.writes == [("scontrol", "update", "NodeName=n1", "Comment=sickbay: inc-7 observed XID 79")]
    assert slurm.node["reason"] == "bad dimm"

    slurm.node["comment"] = "loaned to physics"
    with pytest.raises(RefusedError):
        backend(slurm).annotate("n1", "sickbay: inc-7 observed XID 79")
    assert len(slurm.writes) == 1


@pytest.mark.parametrize("name", ["n[1-2]", "n1,n2", "ALL", "", "n1 State=DOWN", "-n1", "n1\n"])
def test_input_never_widens_the_target(name: str) -> None:
    slurm = FakeSlurm()

    calls: tuple[Callable[[], NodeRecord], ...] = (
        lambda: backend(slurm).observe_node(name),
        lambda: backend(slurm).cordon(name, MARK),
        lambda: backend(slurm).reboot(name, MARK, ordered_at=NOW),
        lambda: backend(slurm).annotate(name, "sickbay: x"),
    )
    for call in calls:
        with pytest.raises(NotFoundError):
            call()
    assert slurm.writes == []


def test_drains_owned_by_others() -> None:
    events = json.loads((CASES / "drain-owned-by-others" / "input.json").read_text())
    nodes = {
        event["node"]: with_owner(
            NodeRecord(
                name=event["node"],
                state=NodeState.DRAINED if event["flags"] else NodeState.IDLE,
                base="idle",
                flags=tuple(event["flags"]),
                owner=Owner.SICKBAY if event["reason"].startswith("sickbay:") else Owner.FOREIGN,
                reason=Reason(event["reason"], event["user"]) if event["reason"] else None,
            ),
            "sickbay",
        )
        for event in events
        if "flags" in event  # the last word on each node
    }

    for name in ("n01", "n02", "n04"):
        assert isinstance(why_not_cordon(nodes[name]), ConflictError), name
        assert isinstance(why_not_uncordon(nodes[name], MARK, "sickbay"), ConflictError), name
    assert why_not_cordon(nodes["n03"]) is None  # whether to drain it again is the lifecycle's question
    assert nodes["n05"].owner is Owner.FOREIGN
    assert not is_ours(nodes["n05"], Mark("inc-9", "gpu-xid"), "sickbay")


def test_the_snapshot_knows_whose_text_it_is() -> None:
    slurm = FakeSlurm(drained(MARK.reason(), user="ops2"))

    assert backend(slurm).observe().nodes["n1"].owner is Owner.FOREIGN
    assert backend(slurm, our_user=None).observe().nodes["n1"].owner is Owner.SICKBAY


# -- jobs: the decision -------------------------------------------------------------------------------

RUNNING = JobRecord(
    id="70",
    state="running",
    nodes=("n1", "n2"),
    kind=JobKind.BATCH,
    requeue=True,
    restarts=1,
    submitted_at=NOW - 500,
    held=False,
)
HELD = replace(
    RUNNING,
    state="pending",
    nodes=(),
    restarts=2,
    submitted_at=NOW - 1,
    begins_at=NOW + 120,
    held=True,
    state_reason="JobHeldUser",
    state_text="job requeued in held state",
)
REQUEST = RequeueRequest(job="70", node="n1", restarts=1, submitted_at=NOW - 500)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (None, Next.GONE),
        (RUNNING, Next.REQUEUE),
        (replace(RUNNING, state="suspended"), Next.REQUEUE),
        (replace(RUNNING, state="completed"), Next.GONE),
        (replace(RUNNING, state="node_fail"), Next.GONE),
        (replace(RUNNING, state="completing"), Next.WAIT),
        (replace(RUNNING, state="signaling"), Next.WAIT),
        (replace(RUNNING, nodes=("n2",)), Next.DONE),
        (replace(RUNNING, restarts=2), Next.DONE),
        (replace(RUNNING, restarts=0), Next.GONE),
        (replace(RUNNING, submitted_at=NOW - 100), Next.GONE),
        (replace(RUNNING, requeue=False), Next.REFUSED),
        (replace(RUNNING, kind=JobKind.INTERACTIVE), Next.REFUSED),
        (replace(RUNNING, kind=JobKind.ARRAY_TASK), Next.REQUEUE),
        (HELD, Next.FREE),
        (replace(HELD, restarts=1, submitted_at=NOW - 500), Next.DONE),
        (replace(HELD, restarts=3), Next.DONE),
        (replace(HELD, state_text=None, excluded_nodes=("n1",)), Next.DONE),
        (replace(HELD, state="special_exit", state_text=None, excluded_nodes=("n1",)), Next.DONE),
        (replace(HELD, held=False, state_text=None, excluded_nodes=("n1",)), Next.DONE),
    ],
)
def test_the_next_thing(job: JobRecord | None, expected: Next) -> None:
    decision = decide(job, REQUEST, now=NOW)

    assert decision.next is expected
    assert decision.reason


def test_a_requeue_keeps_a_hold_that_was_there_before() -> None:
    assert decide(RUNNING, REQUEST, now=NOW).hold
    assert not decide(replace(RUNNING, held=True), REQUEST, now=NOW).hold
    after = replace(HELD, state_text=None)
    decision = decide(after, REQUEST, now=NOW)
    assert (decision.release, decision.start_soon, decision.exclude) == (False, False, ("n1",))


def test_freeing_merges_the_exclusion_and_minds_the_begin_time() -> None:
    decision = decide(replace(HELD, excluded_nodes=("n8", "n9")), REQUEST, now=NOW)
    assert (decision.exclude, decision.release, decision.start_soon) == (("n8", "n9", "n1"), True, True)

    pinned = decide(replace(HELD, required_nodes=("n1",)), REQUEST, now=NOW)
    assert pinned.exclude is None
    assert pinned.release

    unwanted = decide(HELD, replace(REQUEST, exclude_node=False), now=NOW)
    assert unwanted.exclude is None

    tomorrow = decide(replace(HELD, begins_at=NOW + 86_400), REQUEST, now=NOW)
    assert not tomorrow.start_soon  # its user's wish, not our requeue

    near = decide(replace(HELD, begins_at=NOW + 6), REQUEST, now=NOW)
    assert not near.start_soon


@pytest.mark.parametrize("job", ["70_[7-8]", "70,71", "ALL", "", "70 71", "n1", "70_", "-1", "70\n"])
def test_only_one_job_can_be_named(job: str) -> None:
    assert decide(RUNNING, replace(REQUEST, job=job), now=NOW).next is Next.REFUSED


def test_a_heterogeneous_job_is_moved_by_its_leader() -> None:
    assert leader_of("2+1") == "2"
    assert leader_of("700_3") == "700_3"


JOBS = st.builds(
    JobRecord,
    id=st.just("70"),
    state=st.sampled_from(["pending", "running", "completing", "completed", "failed", "suspended"]),
    nodes=st.sampled_from([(), ("n1",), ("n1", "n2"), ("n3",)]),
    kind=st.sampled_from([JobKind.BATCH, JobKind.INTERACTIVE, JobKind.HET, JobKind.UNKNOWN]),
    requeue=st.sampled_from([True, False, None]),
    restarts=st.integers(0, 4),
    submitted_at=st.sampled_from([None, NOW - 500, NOW - 1]),
    begins_at=st.sampled_from([None, NOW - 10, NOW + 120]),
    held=st.sampled_from([True, False, None]),
    state_text=st.sampled_from([None, "job requeued in held state", "launch failed requeued held"]),
    excluded_nodes=st.sampled_from([(), ("n1",), ("n9",)]),
    required_nodes=st.sampled_from([(), ("n1",)]),
)


@given(JOBS)
def test_whatever_the_job_is_the_rules_hold(job: JobRecord) -> None:
    decision = decide(job, REQUEST, now=NOW)

    if decision.next is Next.REQUEUE:
        assert job.state in ("running", "suspended")
        assert REQUEST.node in job.nodes
        assert job.restarts == REQUEST.restarts
        assert job.requeue is not False
        assert job.kind is not JobKind.INTERACTIVE
    if decision.release:
        assert job.state == "pending"
        assert job.restarts == REQUEST.restarts + 1
        assert job.held
        assert job.state_text == "job requeued in held state"
    if decision.exclude is not None:
        assert set(job.excluded_nodes) < set(decision.exclude)
        assert not set(decision.exclude) & set(job.required_nodes)


# -- jobs: what is sent -------------------------------------------------------------------------------


def running(**more: Any) -> dict[str, Any]:
    return {
        "job_id": 70,
        "job_state": "RUNNING",
        "nodes": "n[1-2]",
        "batch_flag": True,
        "requeue": True,
        "restart_cnt": 1,
        "submit_time": int(NOW - 500),
        "priority": 5,
        **more,
    }


def test_a_requeue_from_end_to_end() -> None:
    slurm = FakeSlurm(jobs=[running()])
    here = backend(slurm)
    assert here.requeue(REQUEST).state is RequeueState.IN_PROGRESS

    slurm.jobs = [running(job_state="COMPLETING")]
    assert here.requeue(REQUEST).state is RequeueState.IN_PROGRESS

    waiting = running(
        job_state="PENDING",
        nodes="",
        restart_cnt=2,
        submit_time=int(NOW),
        eligible_time=int(NOW + 121),
        priority=0,
        state_description="job requeued in held state",
        excluded_nodes="n9",
    )
    slurm.jobs = [waiting]

    def freed(fake: FakeSlurm, argv: tuple[str, ...]) -> tuple[int, str, str]:
        if argv[1] == "release":
            fake.jobs = [{**waiting, "priority": 5, "state_description": "", "excluded_nodes": "n[1,9]"}]
        return 0, "", ""

    slurm.on_write = freed
    assert here.requeue(REQUEST).state is RequeueState.DONE
    assert slurm.writes == [
        ("scontrol", "requeuehold", "Incomplete", "70"),
        ("scontrol", "update", "JobId=70", "ExcNodeList=n9,n1"),
        ("scontrol", "update", "JobId=70", "StartTime=now+5"),
        ("scontrol", "release", "70"),
    ]
    assert here.requeue(REQUEST).state is RequeueState.DONE
    assert len(slurm.writes) == 4


def test_a_refusal_of_slurm_is_one_of_ours() -> None:
    slurm = FakeSlurm(jobs=[running(requeue=None)])
    slurm.on_write = lambda _s, _a: (1, "", "Requested operation is presently disabled for job 70")

    outcome = backend(slurm).requeue(REQUEST)

    assert outcome.state is RequeueState.REFUSED
    assert "presently disabled" in outcome.reason


def test_a_job_that_ends_between_look_and_write_is_gone() -> None:
    slurm = FakeSlurm(jobs=[running()])
    slurm.on_write = lambda _s, _a: (1, "", "Invalid job id specified for job 70")

    assert backend(slurm).requeue(REQUEST).state is RequeueState.GONE


def test_an_exclusion_that_slurm_refuses_does_not_keep_the_job_held() -> None:
    held = running(
        job_state="PENDING",
        nodes="",
        restart_cnt=2,
        submit_time=int(NOW),
        priority=0,
        state_description="job requeued in held state",
    )
    slurm = FakeSlurm(jobs=[held])

    def refuse_exclusion(fake: FakeSlurm, argv: tuple[str, ...]) -> tuple[int, str, str]:
        if argv[1] == "release":
            fake.jobs = [{**held, "priority": 5, "state_description": ""}]
            return 0, "", ""
        return 1, "", "Requested node configuration is not available for job 70"

    slurm.on_write = refuse_exclusion

    assert backend(slurm).requeue(REQUEST).state is RequeueState.DONE
    assert slurm.writes[-1] == ("scontrol", "release", "70")


def test_an_array_task_is_named_by_its_task_and_a_component_by_its_leader() -> None:
    task = running(job_id=70, array_job_id=70, array_task_id=3)
    slurm = FakeSlurm(jobs=[task, running(job_id=71, array_job_id=70, array_task_id=4)])
    backend(slurm).requeue(replace(REQUEST, job="70_3"))
    assert slurm.writes == [("scontrol", "requeuehold", "Incomplete", "70_3")]

    slurm = FakeSlurm(jobs=[running(job_id=72, het_job_id=71, het_job_offset=1)])
    backend(slurm).requeue(replace(REQUEST, job="71+1"))
    assert slurm.writes == [("scontrol", "requeuehold", "Incomplete", "71")]


def test_an_outage_is_no_answer() -> None:
    slurm = FakeSlurm(jobs=[running()])
    slurm.on_write = lambda _s, _a: (1, "", "Unable to contact slurm controller (connect failure)")

    with pytest.raises(UnavailableError) as caught:
        backend(slurm).requeue(REQUEST)
    assert isinstance(caught.value, BackendError)
    assert caught.value.retryable


def test_a_requeue_that_may_not_begin_leaves_a_running_job_and_frees_a_held_one() -> None:
    let_go = replace(REQUEST, begin=False)
    assert decide(RUNNING, let_go, now=NOW).next is Next.REFUSED
    assert decide(replace(RUNNING, state="completing"), let_go, now=NOW).next is Next.WAIT
    freed = decide(HELD, let_go, now=NOW)
    assert (freed.next, freed.release) == (Next.FREE, True)
    slurm = FakeSlurm(jobs=[running()])
    assert backend(slurm).requeue(let_go).state is RequeueState.REFUSED
    assert slurm.writes == []


def test_no_write_is_begun_without_enough_of_the_lease() -> None:
    def too_late(deadline: float) -> None:
        raise UnavailableError(f"not called: 0.1 s of our lease are left, the call may take {deadline:g} s")

    slurm = FakeSlurm(jobs=[running()])
    client = SlurmClient(env={}, clock=ManualClock(NOW), runner=slurm, base_env={}, may_act=too_late)
    here = SlurmBackend(client, ManualClock(NOW))
    for write in (
        lambda: here.cordon("n1", MARK),
        lambda: here.annotate("n1", "sickbay: x"),
        lambda: here.requeue(REQUEST),
    ):
        with pytest.raises(UnavailableError, match="the call may take 10 s"):
            write()
    assert slurm.writes == []
