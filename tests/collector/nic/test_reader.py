"""sysfs trees of InfiniBand and RoCE cards, whole, damaged, hostile, and the live reader's deadline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from collector.nic import read_live, read_tree
from fleet.observations import Reading

NOW = 1_767_225_600.0


def tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def port(device: str, number: int = 1, **changes: str) -> dict[str, str]:
    values = {"state": "4: ACTIVE\n", "counters/link_downed": "0\n", "counters/symbol_error": "0\n"} | {
        name.replace("__", "/"): value for name, value in changes.items()
    }
    return {f"{device}/ports/{number}/{name}": value for name, value in values.items()}


def samples(reading: Reading) -> dict[tuple[str, str, str], float]:
    return {(s.labels["device"], s.labels["port"], s.signal): s.value for s in reading.samples}


def reasons(reading: Reading) -> list[str]:
    return [problem.reason.value for problem in reading.problems]


@pytest.mark.parametrize("place", ["", "infiniband", "class/infiniband", "sys/class/infiniband"])
def test_every_port_of_every_device(tmp_path: Path, place: str) -> None:
    tree(
        tmp_path / place,
        port("mlx5_0")
        | port("mlx5_1", state="1: DOWN\n", counters__link_downed="3\n", counters__symbol_error="65535\n")
        | port("mlx5_10", 2),
    )
    reading = read_tree(tmp_path, node="n01", now=NOW)
    assert reading.ok
    assert reasons(reading) == []
    found = samples(reading)
    assert found["mlx5_0", "1", "nic_port_state"] == 4
    assert found["mlx5_1", "1", "nic_port_state"] == 1
    assert found["mlx5_1", "1", "nic_link_downed_total"] == 3
    assert found["mlx5_1", "1", "nic_symbol_errors_total"] == 65535
    assert found["mlx5_10", "2", "nic_port_state"] == 4
    assert len(found) == 9
    assert {(s.node, s.time, s.gpu) for s in reading.samples} == {("n01", NOW, None)}
    assert [s.labels["device"] for s in reading.samples][::3] == ["mlx5_0", "mlx5_1", "mlx5_10"]


def test_absent_is_never_zero(tmp_path: Path) -> None:
    tree(tmp_path, port("irdma0", counters__symbol_error="N/A (no PMA)\n"))
    (tmp_path / "irdma0/ports/1/counters/link_downed").unlink()
    tree(tmp_path, {"irdma1/ports/1/state": "2: INIT\n"})
    reading = read_tree(tmp_path, node=None, now=NOW)
    assert samples(reading) == {
        ("irdma0", "1", "nic_port_state"): 4.0,
        ("irdma1", "1", "nic_port_state"): 2.0,
    }
    assert reasons(reading) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "ACTIVE\n"},
        {"state": "9: WHAT\n"},
        {"state": ""},
        {"state": "4\n"},
        {"counters__symbol_error": "-1\n"},
        {"counters__symbol_error": "0x10\n"},
        {"counters__symbol_error": ""},
        {"counters__symbol_error": "1" * 5000},
        {"counters__link_downed": "\udcff".encode("utf-8", "surrogateescape").decode("latin-1")},
    ],
)
def test_a_damaged_file_costs_itself(tmp_path: Path, changes: dict[str, str]) -> None:
    tree(tmp_path, port("mlx5_0", **changes) | port("mlx5_1"))
    reading = read_tree(tmp_path, node="n01", now=NOW)
    assert reading.ok
    assert reasons(reading) == ["unrecognised_value"]
    assert "mlx5_0/ports/1/" in reading.problems[0].message
    assert len(samples(reading)) == 5


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    tree(tmp_path, port("mlx5_0"))
    state = tmp_path / "mlx5_0/ports/1/state"
    state.unlink()
    state.mkdir()
    reading = read_tree(tmp_path, node="n01", now=NOW)
    assert reasons(reading) == ["unreadable"]
    assert len(samples(reading)) == 2


def test_a_machine_without_such_cards_is_a_sound_answer(tmp_path: Path) -> None:
    reading = read_tree(tmp_path, node="n01", now=NOW)
    assert reading.ok
    assert reasons(reading) == ["no_devices"]
    gone = read_live(1.0, node="n01", now=NOW, root=tmp_path / "infiniband")
    assert gone.ok
    assert reasons(gone) == ["no_devices"]


def test_a_folder_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    reading = read_tree(tmp_path / "missing", node="n01", now=NOW)
    assert not reading.ok
    assert reasons(reading) == ["unreadable"]


def test_links_as_sysfs_has_them(tmp_path: Path) -> None:
    """class/infiniband holds links into the device tree; a dangling one is no device."""
    tree(tmp_path / "devices/pci0000:00/0000:3b:00.0/infiniband", port("mlx5_0"))
    folder = tmp_path / "class/infiniband"
    folder.mkdir(parents=True)
    (folder / "mlx5_0").symlink_to("../../devices/pci0000:00/0000:3b:00.0/infiniband/mlx5_0")
    (folder / "mlx5_1").symlink_to("../../devices/gone")
    assert len(samples(read_tree(tmp_path, node="n01", now=NOW))) == 3


def test_a_read_that_hangs_is_a_timeout(tmp_path: Path) -> None:
    tree(tmp_path, port("mlx5_0"))
    state = tmp_path / "mlx5_0/ports/1/state"
    state.unlink()
    os.mkfifo(state)  # opening it for reading blocks, as a hung card does
    reading = read_live(0.2, node="n01", now=NOW, root=tmp_path)
    assert not reading.ok
    assert reasons(reading) == ["timeout"]
    with state.open("wb"):
        pass
