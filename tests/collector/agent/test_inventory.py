"""The node's GPUs as its sources list them: all of them or nothing, and of this boot only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from collector.agent.inventory import GpuIdentity, ReadInventory, gpus_of
from collector.nvidia_smi import read_live, read_nvidia_smi
from collector.nvml import read_nvml
from fleet.clock import ManualClock
from fleet.observations import Problem, ProblemReason, Reading
from tests.support.node_sources import PCIS, UUIDS, fake_smi, smi_xml

FOUR = tuple(GpuIdentity(UUIDS[n], n, PCIS[n]) for n in range(4))
TWO = FOUR[:2]
NVML = Path(__file__).parents[2] / "data/nvml/mig-and-lost/input.jsonl"


def smi(text: str, returncode: int = 0) -> Reading:
    return read_nvidia_smi(text.encode(), node="n01", now=0.0, returncode=returncode)


@pytest.mark.parametrize(
    ("text", "returncode", "gpus"),
    [
        (smi_xml(4), 0, FOUR),
        (smi_xml(2), 0, TWO),
        ("No devices were found\n", 6, ()),
        ("", 0, None),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9, None),
        ("Failed to initialize NVML: Driver/library version mismatch\n", 18, None),
        # The list is whole, whatever one of them says of itself.
        ("WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n" + smi_xml(2), 14, TWO),
        # It says of itself that a part may be missing.
        (smi_xml(2), 15, None),
        # One more than is shown.
        (smi_xml(2).replace("<attached_gpus>2<", "<attached_gpus>3<"), 0, None),
        # A GPU that is lost, beside those that are shown.
        ("Unable to determine the device handle for GPU0000:4B:00.0: GPU is lost.\n" + smi_xml(2), 0, None),
        # Cut off.
        (smi_xml(2)[:-400], 0, None),
        # A GPU without a name, or with that of another one.
        (smi_xml(2).replace(UUIDS[1], "N/A"), 0, None),
        (smi_xml(2).replace(UUIDS[1], UUIDS[0]), 0, None),
    ],
)
def test_all_of_the_answer_or_nothing(
    text: str, returncode: int, gpus: tuple[GpuIdentity, ...] | None
) -> None:
    assert gpus_of(smi(text, returncode)) == gpus


def test_nvml_with_a_lost_gpu_cannot_tell() -> None:
    assert gpus_of(read_nvml(NVML.read_bytes(), node="n01", now=0.0)) is None


def test_single_answers_after_a_loss_are_no_list(tmp_path: Path) -> None:
    """The tool refuses as a whole; those that are asked one by one do not say how many there are."""
    tool = fake_smi(tmp_path, smi_xml(1))
    lost = "Unable to determine the device handle for GPU0000:4B:00.0: GPU is lost."
    tool.write_text(
        f'#!/bin/sh\ncase "$*" in *-i*) exec cat {tmp_path}/answer.xml;; esac\necho "{lost}"; exit 15\n'
    )
    reading = read_live(5.0, node="n01", now=0.0, tool=str(tool), gpus=lambda: [PCIS[0]])
    assert {sample.gpu for sample in reading.samples} == {UUIDS[0]}
    assert gpus_of(reading) is None


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.boot = "boot-a"
        self.changes = 0
        self.inventory = ReadInventory(
            clock=self.clock, boot_id=lambda: self.boot, changed=self._changed, shown_seconds=45.0
        )

    def _changed(self) -> None:
        self.changes += 1

    def read(self, reading: Reading, source: str = "nvidia-smi") -> None:
        assert self.inventory.watching(source, lambda: reading)() is reading


FAILED = Reading((Problem(source="nvidia-smi", reason=ProblemReason.TIMEOUT, message="late"),), ok=False)


def test_unknown_until_read_then_known_and_told_once() -> None:
    bench = Bench()
    assert bench.inventory.current("boot-a") is None
    bench.read(smi(smi_xml(2)))
    bench.read(smi(smi_xml(2)))
    assert bench.inventory.current("boot-a") == TWO
    assert bench.changes == 1
    bench.read(smi(smi_xml(4)))
    assert bench.inventory.current("boot-a") == FOUR
    assert bench.changes == 2


def test_a_failure_makes_it_unknown_at_once() -> None:
    bench = Bench()
    bench.read(smi(smi_xml(2)))
    bench.read(FAILED)
    assert bench.inventory.current("boot-a") is None
    assert bench.changes == 2


def test_an_old_answer_is_no_answer() -> None:
    bench = Bench()
    bench.read(smi(smi_xml(2)))
    bench.clock.advance(45.0)
    assert bench.inventory.current("boot-a") == TWO
    bench.clock.advance(0.1)
    assert bench.inventory.current("boot-a") is None


def test_the_other_source_answers_where_one_cannot() -> None:
    bench = Bench()
    bench.read(smi(smi_xml(2)))
    bench.read(FAILED, "nvml")
    assert bench.inventory.current("boot-a") == TWO
    bench.read(smi(smi_xml(4)), "nvml")
    assert bench.inventory.current("boot-a") == FOUR


def test_gpus_of_an_earlier_boot_say_nothing_about_this_one() -> None:
    bench = Bench()
    bench.read(smi(smi_xml(2)))
    bench.boot = "boot-b"
    assert bench.inventory.current("boot-b") is None
    bench.read(smi(smi_xml(2)))
    assert bench.inventory.current("boot-b") == TWO


@pytest.mark.parametrize("boots", [["boot-a", "boot-b"], [None, None], [None, "boot-a"], ["boot-a", None]])
def test_a_reboot_or_no_boot_while_it_was_read_leaves_it_unknown(boots: list[str | None]) -> None:
    said = iter(boots)
    inventory = ReadInventory(
        clock=ManualClock(), boot_id=lambda: next(said), changed=lambda: None, shown_seconds=45.0
    )
    read: Callable[[], Reading] = inventory.watching("nvidia-smi", lambda: smi(smi_xml(2)))
    read()
    assert inventory.current("boot-a") is None
    assert inventory.current("boot-b") is None
