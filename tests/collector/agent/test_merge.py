"""Several sources as one: who is believed, under which name, and never two of one series."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from collector.agent.merge import merge
from collector.dcgm import read_dcgm
from collector.nvidia_smi import read_nvidia_smi
from collector.prometheus_text import to_prometheus
from fleet.identity import MigInstance
from fleet.observations import Reading, Sample
from tests.support.node_sources import UUIDS, dcgm_page, smi_xml

MIG_XML = Path(__file__).parents[2] / "data/nvidia_smi/own-550-h100-mig/input.xml"
A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"
PCI_A, PCI_B = "0000:1b:00.0", "0000:2b:00.0"
HEAT, USED = "gpu_temperature_celsius", "gpu_memory_used_bytes"


def sample(value: float, signal: str = HEAT, **fields: Any) -> Sample:
    return Sample(node="n01", signal=signal, value=value, time=0.0, **fields)


def smi(gpus: int = 4) -> tuple[Sample, ...]:
    return read_nvidia_smi(smi_xml(gpus).encode(), node="n01", now=0.0, own_time=False).samples


def dcgm(gpus: int = 4) -> tuple[Sample, ...]:
    return read_dcgm(dcgm_page(gpus), node="n01", now=0.0).samples


def values(samples: tuple[Sample, ...], signal: str) -> dict[str | None, float]:
    return {s.gpu: s.value for s in samples if s.signal == signal and s.mig is None}


def test_the_better_source_is_believed_and_the_others_fill_what_it_lacks() -> None:
    merged = merge([dcgm(), smi()])
    assert values(merged, HEAT) == {UUIDS[n]: 50.0 + n for n in range(4)}
    only_smi = {s.signal for s in smi()} - {s.signal for s in dcgm()}
    assert "gpu_power_limit_watts" in only_smi
    assert {s.signal for s in merged} == {s.signal for s in dcgm()} | {s.signal for s in smi()}
    for signal in only_smi - {"gpu_info"}:
        assert values(merged, signal) == values(smi(), signal), signal


def test_it_is_decided_per_gpu() -> None:
    """dcgm-exporter lost sight of two GPUs: those are nvidia-smi's."""
    merged = merge([dcgm(2), smi(4)])
    seen = values(smi(4), HEAT)
    assert values(merged, HEAT) == {
        UUIDS[0]: 50.0,
        UUIDS[1]: 51.0,
        UUIDS[2]: seen[UUIDS[2]],
        UUIDS[3]: seen[UUIDS[3]],
    }


def test_one_source_alone_is_shown_as_it_is() -> None:
    assert merge([(), smi(), ()]) == smi()
    assert merge([dcgm()]) == dcgm()
    assert merge([]) == ()


def test_all_series_of_a_signal_come_from_one_source() -> None:
    first = [sample(1, "gpu_nvlink_replay_errors_total", gpu=A, labels={"nvlink": "0"})]
    second = [
        sample(7, "gpu_nvlink_replay_errors_total", gpu=A, labels={"nvlink": str(link)}) for link in range(4)
    ]
    assert merge([first, second]) == tuple(first)
    assert merge([[], second]) == tuple(second)


def test_board_and_slices_are_decided_apart() -> None:
    """With MIG, DCGM gives the memory of slices only; the board's is nvidia-smi's."""
    slices = [sample(n, USED, gpu=A, mig=MigInstance(gi=n, profile="1g.10gb")) for n in (1, 2)]
    other = [sample(100, USED, gpu=A, pci=PCI_A), sample(9, USED, gpu=A, mig=MigInstance(gi=1, ci=0))]
    merged = merge([slices, other])
    assert [(s.mig.gi if s.mig else None, s.value) for s in merged] == [(1, 1), (2, 2), (None, 100)]


def test_a_gpu_has_one_name_whatever_its_sources_call_it() -> None:
    dcgm_says = [sample(1, gpu=A, index=0), sample(2, gpu=B, index=1)]
    smi_says = [
        sample(3, USED, gpu=A, pci=PCI_A, index=0),
        sample(4, USED, pci=PCI_B, index=1),
        sample(5, "gpu_power_watts", index=0),
    ]
    merged = merge([dcgm_says, smi_says])
    assert [(s.gpu, s.pci, s.index, s.value) for s in merged] == [
        (A, PCI_A, 0, 1),
        # Nothing says that the GPU at this address is the one with that UUID: an index is no proof.
        (B, None, 1, 2),
        (A, PCI_A, 0, 3),
        (None, PCI_B, 1, 4),
        (A, PCI_A, 0, 5),
    ]


def test_after_a_loss_an_index_joins_nothing() -> None:
    """GPU A fell off: nvidia-smi now calls B number 0, dcgm-exporter still says 1."""
    merged = merge(
        [[sample(1, gpu=A, index=0), sample(2, gpu=B, index=1)], [sample(3, USED, gpu=B, pci=PCI_B, index=0)]]
    )
    assert [(s.gpu, s.index, s.value) for s in merged] == [(A, 0, 1), (B, 1, 2), (B, 1, 3)]
    unsure = merge([[sample(1, gpu=A, index=0), sample(2, gpu=B, index=0)], [sample(3, USED, index=0)]])
    assert [(s.gpu, s.value) for s in unsure] == [(A, 1), (B, 2), (None, 3)]


def test_functions_of_one_device_are_one_gpu() -> None:
    merged = merge([[sample(1, pci="0000:1b:00.0")], [sample(2, pci="0000:1b:00.1", gpu=A)]])
    assert [(s.gpu, s.value) for s in merged] == [(A, 1)]


def test_info_has_the_labels_of_all() -> None:
    first = sample(1, "gpu_info", gpu=A, labels={"model": "NVIDIA H200", "driver": "580"})
    second = sample(
        1, "gpu_info", gpu=A, pci=PCI_A, labels={"model": "H200", "vbios": "96", "mig_pending": "enabled"}
    )
    (merged,) = merge([[first], [second]])
    assert merged.labels == {"model": "NVIDIA H200", "driver": "580", "vbios": "96", "mig_pending": "enabled"}


def test_cards_of_the_node_stay_apart() -> None:
    cards = [sample(n, "nic_port_state", labels={"device": f"mlx5_{n}", "port": "1"}) for n in range(3)]
    assert merge([[], cards]) == tuple(cards)
    assert merge([[sample(8, "node_gpu_count")], [sample(7, "node_gpu_count")]]) == (
        sample(8, "node_gpu_count"),
    )


def test_a_mig_node_keeps_every_slice() -> None:
    reading = read_nvidia_smi(MIG_XML.read_bytes(), node="n01", now=0.0, own_time=False)
    assert any(s.mig is not None for s in reading.samples)
    assert merge([reading.samples]) == reading.samples


_names = st.fixed_dictionaries(
    {
        "gpu": st.sampled_from([None, A, B]),
        "pci": st.sampled_from([None, PCI_A, PCI_B]),
        "index": st.sampled_from([None, 0, 1]),
        "mig": st.sampled_from(
            [None, MigInstance(gi=1), MigInstance(gi=1, profile="1g.10gb"), MigInstance(gi=1, ci=0)]
        ),
        "labels": st.sampled_from([{}, {"xid": "79"}]),
    }
)
_samples = st.builds(
    lambda value, signal, names: sample(value, signal, **names),
    st.integers(0, 9),
    st.sampled_from([HEAT, USED, "gpu_energy_joules_total", "gpu_info", "node_gpu_count"]),
    _names,
)


@given(st.lists(st.lists(_samples, max_size=8), max_size=4))
def test_no_series_stands_there_twice_whatever_the_sources_say(sources: list[list[Sample]]) -> None:
    merged = merge(sources)
    lines = [line for line in to_prometheus(Reading(merged)).splitlines() if not line.startswith("#")]
    assert len(lines) == len(merged)
    twice = [name for name, count in Counter(line.rpartition(" ")[0] for line in lines).items() if count > 1]
    assert not twice
    given_ = {(s.signal, s.value) for samples in sources for s in samples}
    assert {(s.signal, s.value) for s in merged} <= given_
    if any(sources):
        assert merged, "something was said, and nothing is shown"
