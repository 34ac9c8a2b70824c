"""The event engine, as a table: what acts, what does not, and what only looks as if it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.findings import ClearOn, Mode, Severity
from fleet.observations import Event, EventKind, RecoveryAction
from rules.catalogue import load_catalogue
from rules.events import EventContext, PastEvent, Weighed, finding_id, weigh

CATALOGUE = load_catalogue()
NODE, GPU, OTHER = "n01", "0000:3b:00.0", "0000:5a:00.0"
NOW = 1_767_225_600.0


def xid(code: int, **more: Any) -> Event:
    return event(EventKind.XID, code=code, **more)


def event(kind: EventKind, **more: Any) -> Event:
    return Event(**{"kind": kind, "node": NODE, "time": NOW, "pci": GPU, "boot_id": "b1", **more})


def judge(what: Event, *past: PastEvent, jobs: tuple[str, ...] = ("4711",), **more: Any) -> Weighed:
    context = EventContext(
        **{"node": NODE, "current_boot_id": "b1", "jobs": jobs, "history": past, **more},
    )
    return weigh(what, context, CATALOGUE)


def before(what: Event, seconds: float = 1.0, jobs: tuple[str, ...] = ()) -> PastEvent:
    return PastEvent(replace(what, time=NOW - seconds), jobs)


def outcome(weighed: Weighed) -> str:
    """``rule response/repair`` of the finding, else ``-``."""
    finding = weighed.finding
    return f"{finding.rule} {finding.response}/{finding.repair}" if finding is not None else "-"


FELL_OFF = "gpu-fell-off-bus drain/reboot"
NEEDS_RESET = "gpu-needs-reset drain/reset_gpu"
NVLINK_FATAL = "gpu-nvlink-fatal drain/reset_gpu"
NVLINK_ERROR = "gpu-nvlink-error cordon_after_job/reset_gpu"
RECOVERY = {
    RecoveryAction.NONE: "-",
    RecoveryAction.GPU_RESET: "gpu-recovery-reset drain/reset_gpu",
    RecoveryAction.DRAIN_AND_RESET: "gpu-recovery-reset drain/reset_gpu",
    RecoveryAction.NODE_REBOOT: "gpu-recovery-reboot drain/reboot",
    RecoveryAction.DRAIN_P2P: "gpu-recovery-p2p cordon_after_job/reset_gpu",
    RecoveryAction.RECOVER_IMEX_DOMAIN: "gpu-recovery-imex notify/none",
    RecoveryAction.UNKNOWN: "-",
}
LINK_DOWN = {"unit": "NETIR_LINK_EVT", "fatal": True}


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        # gpu-fell-off-bus, and its near misses
        (xid(79), FELL_OFF),
        (xid(79, pci=None), FELL_OFF),
        (event(EventKind.GPU_LOST), FELL_OFF),
        (xid(78), "gpu-needs-investigation notify/none"),
        (xid(97), "-"),
        (event(EventKind.SXID, code=79, fatal=False), "-"),
        (event(EventKind.OTHER, code=79, message="Xid 79"), "-"),
        # engines and firmware
        (xid(46), NEEDS_RESET),
        (xid(62), NEEDS_RESET),
        (xid(119), NEEDS_RESET),
        (xid(120), NEEDS_RESET),
        (xid(143), NEEDS_RESET),
        (xid(158), NEEDS_RESET),
        (xid(61), "-"),
        (xid(121), "-"),
        (xid(109), "gpu-context-switch-timeout cordon_after_job/reset_gpu"),
        (xid(151), "gpu-key-rotation-failed cordon_after_job/reboot"),
        (xid(54), "gpu-power-lead-missing cordon_after_job/hand_over"),
        (xid(55), "-"),
        (xid(163), "gpu-power-smoothing-out notify/none"),
        (xid(162), "-"),
        (xid(164), "gpu-needs-investigation notify/none"),
        (xid(167), "gpu-bus-fatal drain/reboot"),
        (xid(173), "gpu-bus-fatal drain/reboot"),
        (xid(176), "pcie-errors notify/none"),
        (xid(169), "gpu-awaits-recovery-action notify/none"),
        # memory
        (xid(48), "gpu-memory-uncorrectable drain/reset_gpu"),
        (xid(95), "gpu-memory-uncorrectable drain/reset_gpu"),
        (xid(140), "gpu-memory-uncorrectable drain/reset_gpu"),
        (xid(94), "gpu-memory-contained reset_when_idle/reset_gpu"),
        (xid(63), "gpu-row-remap-pending reset_when_idle/reset_gpu"),
        (xid(64), "gpu-row-remap-failed drain/hand_over"),
        (xid(92), "-"),
        # application
        (xid(13), "-"),
        (xid(31), "-"),
        (xid(43), "-"),
        (xid(45), "-"),
        (xid(45, cause=79), "-"),
        # unknown
        (xid(999), "-"),
        (xid(0), "-"),
        (xid(79, uncertain=True), "-"),
        # NVLink 1-4: the severity word and the register bits
        (xid(74), NVLINK_ERROR),
        (xid(74, fatal=True, registers=("0x10000", "0x0")), NVLINK_ERROR),
        (xid(74, registers=("0x00000000",)), NVLINK_ERROR),
        (xid(74, registers=("rubbish",)), NVLINK_ERROR),
        (xid(74, fatal=False, registers=("0x10000",)), "-"),
        (xid(74, registers=("0x00800001", "0x0")), "-"),
        (xid(74, registers=("0x00100002",)), "-"),
        (xid(74, registers=("0x00110002",)), NVLINK_ERROR),
        # NVLink 5: the word decides, the number alone says nothing
        *((xid(code), "-") for code in range(144, 151)),
        *((xid(code, fatal=False), "-") for code in range(144, 151)),
        *((xid(code, fatal=True), NVLINK_FATAL) for code in range(144, 151)),
        (xid(149, registers=("0x01e041c6",), **LINK_DOWN), NVLINK_FATAL),
        (xid(149, registers=("0x0214a5c6",), **LINK_DOWN), NVLINK_ERROR),
        (xid(149, registers=("0x026041c6",), **LINK_DOWN), "gpu-needs-investigation notify/none"),
        (xid(149, registers=("0x0214a5c6",), unit="NETIR", fatal=True), NVLINK_FATAL),
        (xid(149, registers=("0x" + "f" * 40,), **LINK_DOWN), NVLINK_FATAL),
        (xid(136), NVLINK_FATAL),
        (xid(137), "-"),
        # 154 by its value
        *((xid(154, recovery_action=action), expected) for action, expected in RECOVERY.items()),
        (xid(154), "-"),
        (xid(153, recovery_action=RecoveryAction.NODE_REBOOT), "-"),
        # NVSwitch
        (event(EventKind.SXID, code=24007, fatal=True), "nvswitch-fatal drain/reboot"),
        (event(EventKind.SXID, code=20009, fatal=False), "-"),
        (event(EventKind.SXID, code=26008), "nvswitch-unclear notify/none"),
        # host and driver
        (
            event(EventKind.DRIVER_FAULT, message="NVRM: GPU 0000:9c:00.0: RmInitAdapter failed! (0x62)"),
            "gpu-driver-fault drain/reboot",
        ),
        (
            event(EventKind.DRIVER_FAULT, message="nvidia: probe of 0000:5e:00.0 failed with error -1"),
            "gpu-driver-fault drain/reboot",
        ),
        (
            event(EventKind.DRIVER_FAULT, pci=None, message="probe routine was not called for 1 device(s)"),
            "gpu-driver-unclear notify/none",
        ),
        (
            event(EventKind.DRIVER_FAULT, message="installed in this system is not supported by the NVIDIA"),
            "gpu-driver-unclear notify/none",
        ),
        (
            event(EventKind.MACHINE_CHECK, pci=None, fatal=True),
            "host-memory-uncorrectable cordon_after_job/reboot",
        ),
        (event(EventKind.MACHINE_CHECK, pci=None, fatal=False, count=32767), "-"),
        (event(EventKind.MACHINE_CHECK, pci=None), "-"),
        (event(EventKind.PCIE_AER, fatal=True), "pcie-errors notify/none"),
        (event(EventKind.PCIE_AER, fatal=False), "-"),
        (event(EventKind.BOOT, pci=None), "-"),
        (event(EventKind.NIC, pci=None), "-"),
        (Event(kind=EventKind.XID, node=NODE, time=NOW, boot_id="b1"), "-"),
    ],
)
def test_one_event_alone(what: Event, expected: str) -> None:
    weighed = judge(what)
    assert outcome(weighed) == expected, weighed.sentence
    assert weighed.sentence
    assert "\n" not in weighed.sentence


def test_the_finding_of_a_lost_gpu() -> None:
    lost = xid(
        79, gpu="GPU-34c8", pid=12, process="python3", count=41, message="NVRM: Xid ... 79, " + "x" * 900
    )
    weighed = judge(lost, modes={"gpu-needs-reset": Mode.OBSERVE})
    finding = weighed.finding
    assert finding is not None
    assert weighed.sentence == finding.sentence
    assert finding.sentence == (
        "XID 79 on 0000:3b:00.0: GPU has fallen off the bus; the node must be drained and rebooted"
    )
    assert finding.severity is Severity.CRITICAL
    assert finding.kind == "gpu_lost"
    assert (finding.node, finding.gpu, finding.uuid) == (NODE, GPU, "GPU-34c8")
    assert (finding.boot_id, finding.source, finding.since) == ("b1", "agent", NOW)
    assert (finding.mode, finding.clear_on) == (Mode.AUTO, ClearOn.NEW_EPOCH_AND_GPU_COUNT)
    message = finding.evidence["message"]
    assert isinstance(message, str)
    assert len(message) == 300
    assert {key: finding.evidence[key] for key in ("code", "pci", "process", "pid", "count")} == {
        "code": 79,
        "pci": GPU,
        "process": "python3",
        "pid": 12,
        "count": 41,
    }


def test_a_repeat_joins_and_another_fault_does_not() -> None:
    def id_of(what: Event) -> str:
        finding = judge(what, current_boot_id=what.boot_id).finding
        assert finding is not None
        return finding.id

    first = id_of(xid(79))
    assert id_of(xid(79, time=NOW + 900, count=7, message="again")) == first
    assert id_of(event(EventKind.GPU_LOST)) == first, "the same fault without a number"
    assert id_of(xid(79, pci="0000:3b:00.1")) == first, "joins ignore the function"
    assert first == finding_id("gpu-fell-off-bus", NODE, "0000:3b:00", "b1")
    others = {
        id_of(xid(79, pci=OTHER)),
        id_of(xid(79, boot_id="b2")),
        id_of(xid(119)),
        id_of(xid(79, pci=None)),
    }
    assert len(others | {first}) == 5


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (xid(79, boot_id="b0"), "belongs to an earlier boot"),
        (xid(79, boot_id=None), "does not say which boot"),
        (xid(79, node="n02"), "names node n02, not n01: refused"),
        (xid(79, node="n[1-1000]"), "refused"),
        (xid(79, uncertain=True), "torn"),
    ],
)
def test_events_that_trigger_nothing(what: Event, words: str) -> None:
    weighed = judge(what)
    assert weighed.finding is None
    assert weighed.closes == ()
    assert words in weighed.sentence


def test_before_the_agent_has_named_a_boot_the_event_counts() -> None:
    assert outcome(judge(xid(79), current_boot_id=None)) == FELL_OFF


def test_a_disabled_rule_finds_nothing_and_says_so() -> None:
    weighed = judge(xid(79), disabled=frozenset({"gpu-fell-off-bus"}))
    assert weighed.finding is None
    assert "rule gpu-fell-off-bus is disabled" in weighed.sentence


def test_a_cause_whose_rule_is_disabled_swallows_nothing() -> None:
    disabled = frozenset({"gpu-fell-off-bus"})
    weighed = judge(xid(95, cause=79), before(xid(79)), disabled=disabled)
    assert outcome(weighed) == "gpu-memory-uncorrectable drain/reset_gpu"
    assert outcome(judge(xid(95, cause=79), before(xid(79)))) == "-"


def test_a_configured_mode_takes_the_place_of_the_rules_own() -> None:
    finding = judge(xid(79), modes={"gpu-fell-off-bus": Mode.OBSERVE}).finding
    assert finding is not None
    assert finding.mode is Mode.OBSERVE


# -- causes and consequences ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "past", "expected"),
    [
        (xid(95, cause=48), [before(xid(48))], "-"),
        (xid(94, cause=95), [before(xid(95))], "-"),
        (xid(94, cause=95), [], "gpu-memory-contained reset_when_idle/reset_gpu"),
        (xid(95, cause=94), [before(xid(94))], "gpu-memory-uncorrectable drain/reset_gpu"),
        (xid(95, cause=48), [before(xid(48, pci=OTHER))], "gpu-memory-uncorrectable drain/reset_gpu"),
        (xid(95, cause=48), [before(xid(48), 600)], "gpu-memory-uncorrectable drain/reset_gpu"),
        (xid(95, cause=48), [before(xid(48, uncertain=True))], "gpu-memory-uncorrectable drain/reset_gpu"),
        (xid(95, cause=48), [before(xid(48, boot_id="b0"))], "gpu-memory-uncorrectable drain/reset_gpu"),
        (xid(95, cause=95), [before(xid(95))], "gpu-memory-uncorrectable drain/reset_gpu"),
        (xid(171), [before(xid(48))], "-"),
        (xid(171), [before(xid(63))], "gpu-needs-investigation notify/none"),
        (xid(172), [before(xid(95))], "-"),
        (xid(31, cause=95), [before(xid(95))], "-"),
        # a link has two ends
        (xid(74), [before(event(EventKind.SXID, code=24007, fatal=True, pci="0000:c5:00.0"))], "-"),
        (xid(74), [before(event(EventKind.SXID, code=20009, fatal=False, pci="0000:c5:00.0"))], NVLINK_ERROR),
        (xid(74), [before(xid(74, pci=OTHER))], NVLINK_ERROR),
        (xid(149, registers=("0x0214a5c6",), **LINK_DOWN), [before(xid(149, fatal=True, pci=OTHER))], "-"),
        (
            xid(149, registers=("0x0214a5c6",), **LINK_DOWN),
            [before(xid(149, fatal=False, pci=OTHER))],
            NVLINK_ERROR,
        ),
        (
            xid(149, registers=("0x0214a5c6",), **LINK_DOWN),
            [before(xid(149, registers=("0x0214a5c6",), pci=OTHER, **LINK_DOWN))],
            NVLINK_ERROR,
        ),
        # a peer's bare number, without its words, is no evidence
        (xid(149, registers=("0x0214a5c6",), **LINK_DOWN), [before(xid(149, pci=OTHER))], NVLINK_ERROR),
        # lines that name less than the one before
        (
            event(EventKind.DRIVER_FAULT, pci=None, message="probe routine failed for 1 device(s)"),
            [before(event(EventKind.DRIVER_FAULT, message="RmInitAdapter failed!"))],
            "-",
        ),
        (event(EventKind.SXID, code=24007), [before(event(EventKind.SXID, code=24007, fatal=True))], "-"),
        (
            event(EventKind.SXID, code=26006),
            [before(event(EventKind.SXID, code=24007, fatal=True))],
            "nvswitch-unclear notify/none",
        ),
    ],
)
def test_a_consequence_follows_its_cause(what: Event, past: list[PastEvent], expected: str) -> None:
    weighed = judge(what, *past)
    assert outcome(weighed) == expected, weighed.sentence


def test_the_sentence_of_a_consequence_names_the_cause() -> None:
    assert "follows XID 79, whose own line decides" in judge(xid(45, cause=79)).sentence
    assert (
        "follows XID 95, which has been judged already" in judge(xid(45, cause=95), before(xid(95))).sentence
    )
    peer = judge(xid(74, registers=("0x2",)), before(xid(74, pci=OTHER)))
    assert "the other end went down first (0000:5a:00)" in peer.sentence
    assert "the other end of the link decides" in judge(xid(74, registers=("0x2",))).sentence


# -- application faults -----------------------------------------------------------------------------


def test_an_application_fault_blames_its_job() -> None:
    weighed = judge(xid(31))
    assert weighed.rule == "gpu-app-fault"
    assert weighed.sentence == "XID 31 on 0000:3b:00.0: MMU fault; blames job 4711, not the GPU"
    assert "no job is known to blame" in judge(xid(31), jobs=()).sentence
    assert "blames jobs 1, 2, 3 and 2 more" in judge(xid(31), jobs=("1", "2", "3", "4", "5")).sentence


HOUR = 3600.0


@pytest.mark.parametrize(
    ("past", "jobs", "follows"),
    [
        ([before(xid(31), HOUR, ("a",)), before(xid(13), 2 * HOUR, ("b",))], ("c",), True),
        ([before(xid(31), HOUR, ("a",)), before(xid(13), 2 * HOUR, ("b",))], ("b",), False),
        ([before(xid(31), HOUR, ("a",))] * 7, ("a",), False),
        ([before(xid(31), HOUR, ("a",)), before(xid(13), 25 * HOUR, ("b",))], ("c",), False),
        ([before(xid(31, pci=OTHER), HOUR, ("a",)), before(xid(13), HOUR, ("b",))], ("c",), False),
        # three jobs on the node at once are not three jobs that faulted
        ([before(xid(31), HOUR, ("a", "b", "c"))], ("a", "b", "c"), False),
        ([before(xid(31), HOUR, ("a", "b")), before(xid(31), 2 * HOUR, ("b", "c"))], ("c", "d"), False),
        ([before(xid(31), HOUR, ("a", "b")), before(xid(31), 2 * HOUR, ("c", "d"))], ("e", "f"), True),
        # teardown lines are printed for every cancelled job
        ([before(xid(45), HOUR, ("a",)), before(xid(45), 2 * HOUR, ("b",))], ("c",), False),
        # a job that faults elsewhere too carries its bug along
        (
            [
                before(xid(31), HOUR, ("a",)),
                before(xid(31, pci=OTHER), HOUR, ("a",)),
                before(xid(13), 2 * HOUR, ("b",)),
            ],
            ("c",),
            False,
        ),
        # consequences of a hardware fault, other boots, torn lines, unknown jobs
        ([before(xid(43, cause=95), HOUR, ("a",)), before(xid(31), 2 * HOUR, ("b",))], ("c",), False),
        ([before(xid(31, boot_id="b0"), HOUR, ("a",)), before(xid(31), HOUR, ("b",))], ("c",), False),
        ([before(xid(31, uncertain=True), HOUR, ("a",)), before(xid(31), HOUR, ("b",))], ("c",), False),
        ([before(xid(31), HOUR), before(xid(31), 2 * HOUR)], (), False),
        ([before(xid(119), HOUR, ("a",)), before(xid(64), HOUR, ("b",))], ("c",), False),
    ],
)
def test_faults_that_follow_the_gpu(past: list[PastEvent], jobs: tuple[str, ...], follows: bool) -> None:
    weighed = judge(xid(31), *past, jobs=jobs)
    expected = "gpu-app-faults-follow-gpu notify/none" if follows else "-"
    assert outcome(weighed) == expected, weighed.sentence


def test_faults_that_follow_the_gpu_name_their_jobs() -> None:
    weighed = judge(xid(31), before(xid(31), HOUR, ("a",)), before(xid(13), 2 * HOUR, ("b",)), jobs=("c",))
    finding = weighed.finding
    assert finding is not None
    assert finding.severity is Severity.WARNING
    assert finding.evidence["jobs"] == ["a", "b", "c"]
    assert "jobs a, b, c" in finding.sentence


def test_faults_on_a_device_that_is_not_named_follow_nothing() -> None:
    nowhere = xid(31, pci=None)
    past = [before(nowhere, HOUR, ("a",)), before(nowhere, HOUR, ("b",))]
    assert judge(nowhere, *past, jobs=("c",)).finding is None


# -- what ends ----------------------------------------------------------------------------------------

RECOVERY_RULES = ("gpu-recovery-reset", "gpu-recovery-reboot", "gpu-recovery-p2p", "gpu-recovery-imex")


@pytest.mark.parametrize(
    ("what", "closes"),
    [
        (xid(162), {"gpu-power-smoothing-out"}),
        (xid(163), set()),
        (xid(154, recovery_action=RecoveryAction.NONE), set(RECOVERY_RULES)),
        (xid(154, recovery_action=RecoveryAction.NODE_REBOOT), set(RECOVERY_RULES) - {"gpu-recovery-reboot"}),
        (
            xid(154, recovery_action=RecoveryAction.DRAIN_AND_RESET),
            set(RECOVERY_RULES) - {"gpu-recovery-reset"},
        ),
        (xid(154, recovery_action=RecoveryAction.UNKNOWN), set()),
        (xid(154, recovery_action=RecoveryAction.NONE, uncertain=True), set()),
        (xid(154, recovery_action=RecoveryAction.NONE, boot_id="b0"), set()),
        (xid(79), set()),
    ],
)
def test_what_an_event_ends(what: Event, closes: set[str]) -> None:
    assert set(judge(what).closes) == closes


def test_an_event_ends_findings_of_its_own_gpu_only() -> None:
    opened = judge(xid(163)).finding
    elsewhere = judge(xid(163, pci=OTHER)).finding
    other_rule = judge(xid(79)).finding
    assert opened is not None
    assert elsewhere is not None
    assert other_rule is not None
    closing = judge(xid(162, pci="0000:3b:00.0"))
    assert [closing.ends(finding) for finding in (opened, elsewhere, other_rule)] == [True, False, False]
