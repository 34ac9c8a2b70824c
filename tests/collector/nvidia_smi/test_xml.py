"""XML layouts, contradictions and damage."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from collector.nvidia_smi.reader import read_nvidia_smi
from collector.signals import load_signals
from fleet.identity import MigInstance
from fleet.observations import GpuProcess, ProblemReason, Reading, Sample

DATA = Path(__file__).parents[2] / "data" / "nvidia_smi"
FOUR = (DATA / "own-580-four-gpus" / "input.xml").read_text()
NOW = 1_770_000_000.0
PROCESS = (
    "<process_info><pid>{}</pid><process_name>{}</process_name><used_memory>{}</used_memory></process_info>"
)


def read(text: str | bytes, args: list[str] | None = None) -> Reading:
    data = text.encode() if isinstance(text, str) else text
    return read_nvidia_smi(data, node="n01", now=NOW, args=args)


def gpu(body: str, *, attached: int = 1, head: str = "") -> str:
    return (
        f"<nvidia_smi_log>{head}<attached_gpus>{attached}</attached_gpus>"
        f'<gpu id="00000000:05:00.0"><uuid>GPU-aa</uuid>{body}</gpu></nvidia_smi_log>'
    )


def samples(reading: Reading) -> list[Sample]:
    return [record for record in reading.records if isinstance(record, Sample)]


def values(reading: Reading) -> dict[str, float]:
    return {s.signal: s.value for s in samples(reading) if s.gpu is not None and s.mig is None}


def reasons(reading: Reading) -> list[ProblemReason]:
    return [problem.reason for problem in reading.problems]


def by_gpu(reading: Reading) -> dict[str | None, set[tuple[str, float]]]:
    found: dict[str | None, set[tuple[str, float]]] = {}
    for sample in samples(reading):
        found.setdefault(sample.gpu, set()).add((sample.signal, sample.value))
    return found


def test_a_whole_node_of_a_current_driver() -> None:
    reading = read(FOUR)
    assert not reading.problems
    second = {s.signal: s for s in samples(reading) if s.index == 1}
    assert second["gpu_info"].gpu == "GPU-5a000000-0000-4000-8000-000000000001"
    assert second["gpu_info"].labels == {
        "model": "NVIDIA H200",
        "driver": "580.65.06",
        "vbios": "96.00.A5.00.01",
    }
    assert second["gpu_fabric_state"].labels == {
        "cluster": "6b000000-0000-4000-8000-000000000001",
        "clique": "3",
    }
    assert {name: sample.value for name, sample in second.items()} == {
        "gpu_info": 1,
        "gpu_temperature_celsius": 61,
        "gpu_memory_temperature_celsius": 55,
        "gpu_temperature_margin_celsius": 26,
        "gpu_power_watts": 501.25,
        "gpu_power_limit_watts": 700,
        "gpu_sm_clock_hertz": 1969e6,
        "gpu_memory_clock_hertz": 3201e6,
        "gpu_sm_clock_max_hertz": 1980e6,
        "gpu_utilization_ratio": 0.91,
        "gpu_memory_utilization_ratio": 0.4,
        "gpu_memory_used_bytes": 1001 * 2**20,
        "gpu_memory_total_bytes": 143771 * 2**20,
        "gpu_pcie_transmit_bytes_per_second": 685e3,
        "gpu_pcie_receive_bytes_per_second": 324e3,
        "gpu_pcie_link_generation": 5,
        "gpu_pcie_link_generation_max": 5,
        "gpu_pcie_link_width": 16,
        "gpu_pcie_link_width_max": 16,
        "gpu_pcie_replays_total": 1,
        "gpu_remapped_rows_corrected": 0,
        "gpu_remapped_rows_uncorrected": 0,
        "gpu_row_remap_pending": 0,
        "gpu_row_remap_failed": 0,
        "gpu_ecc_sram_threshold_exceeded": 0,
        "gpu_channel_repair_pending": 0,
        "gpu_ecc_corrected_volatile_total": 5,
        "gpu_ecc_uncorrected_volatile_total": 7,
        "gpu_ecc_corrected_aggregate_total": 7,
        "gpu_ecc_uncorrected_aggregate_total": 0,
        "gpu_clock_event_reasons": 0x4,
        "gpu_recovery_action": 0,
        "gpu_fabric_state": 3,
        "gpu_fabric_status": 0,
    }
    assert [s.value for s in samples(reading) if s.signal == "gpu_pcie_link_generation_max"] == [5, 5, 5, 4]
    processes = [r for r in reading.records if isinstance(r, GpuProcess)]
    assert [p.pid for p in processes] == [4000, 4001, 4002, 4003]
    assert processes[2].name == "/usr/bin/python3 train.py --rank=2"


def test_the_documents_own_local_time_dates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        for zone, expected in (("UTC", 1788295648.0), ("Europe/Berlin", 1788288448.0)):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            assert {sample.time for sample in samples(read(FOUR))} == {expected}
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_odd_timestamp_is_a_problem_and_now_counts() -> None:
    reading = read(gpu("", head="<timestamp>yesterday</timestamp>"))
    assert {sample.time for sample in samples(reading)} == {NOW}
    assert reasons(reading) == [ProblemReason.UNRECOGNISED_VALUE]


def test_every_signal_of_the_table_that_the_xml_gives_is_read() -> None:
    """signals.csv names the sources; the reader's own table must not fall behind it."""
    from collector.nvidia_smi import fields

    ours = {spec.signal for spec in (*fields.FIELDS, *fields.PCIE_GENERATION_MAX)}
    ours |= {spec.signal for spec in fields.ECC_COUNTERS}
    ours |= {fields.MEMORY_TOTAL.signal, fields.RECOVERY_ACTION.signal}
    ours |= {fields.FABRIC_STATE.signal, fields.FABRIC_STATUS.signal}
    ours |= {"gpu_clock_event_reasons", "gpu_info", "node_gpu_count"}
    table = load_signals()
    assert ours <= set(table)
    assert {s.name for s in table.values() if s.nvidia_smi_xml or s.nvidia_smi_query} <= ours


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("<gpu_recovery_action>None</gpu_recovery_action>", 0),
        ("<gpu_recovery_action>Reset</gpu_recovery_action>", 1),
        ("<gpu_recovery_action>Reboot</gpu_recovery_action>", 2),
        ("<gpu_recovery_action>Drain P2P</gpu_recovery_action>", 3),
        ("<gpu_recovery_action>Drain and Reset</gpu_recovery_action>", 4),
        ("<gpu_recovery_action>Recover IMEX Domain</gpu_recovery_action>", 5),
        ("<gpu_recovery_action>Bus Reset</gpu_recovery_action>", 6),
        ("<gpu_recovery_action>System Reboot</gpu_recovery_action>", 7),
        ("<gpu_recovery_action>N/A</gpu_recovery_action>", None),
        (
            "<reset_required>No</reset_required><drain_and_reset_recommended>No</drain_and_reset_recommended>",
            0,
        ),
        (
            "<reset_required>Yes</reset_required><drain_and_reset_recommended>No</drain_and_reset_recommended>",
            1,
        ),
        (
            "<reset_required>No</reset_required><drain_and_reset_recommended>Yes</drain_and_reset_recommended>",
            4,
        ),
        (
            "<reset_required>Yes</reset_required><drain_and_reset_recommended>Yes</drain_and_reset_recommended>",
            1,
        ),
        (
            "<reset_required>No</reset_required><drain_and_reset_recommended>N/A</drain_and_reset_recommended>",
            None,
        ),
        ("<reset_required>No</reset_required>", None),
    ],
)
def test_recovery_action(body: str, value: float | None) -> None:
    if "reset_required" in body:
        body = f"<gpu_reset_status>{body}</gpu_reset_status>"
    reading = read(gpu(body))
    assert values(reading).get("gpu_recovery_action") == value
    assert not reading.problems


def test_an_unknown_recovery_action_is_no_value() -> None:
    reading = read(gpu("<gpu_recovery_action>Pray</gpu_recovery_action>"))
    assert "gpu_recovery_action" not in values(reading)
    assert reasons(reading) == [ProblemReason.UNRECOGNISED_VALUE]


def test_no_action_beside_a_reset_flag_is_a_contradiction() -> None:
    reading = read(
        gpu(
            "<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>"
            "<gpu_recovery_action>None</gpu_recovery_action>"
        )
    )
    assert "gpu_recovery_action" not in values(reading)
    assert reasons(reading) == [ProblemReason.INCONSISTENT]


@pytest.mark.parametrize(
    ("flags", "mask", "problems"),
    [
        ({"gpu_idle": "Not Active"}, 0, []),
        ({"applications_clocks_setting": "Active", "display_clock_setting": "Active"}, 0x102, []),
        ({"sync_boost": "Active", "sw_thermal_slowdown": "Active"}, 0x30, []),
        ({"hw_power_brake_slowdown": "Active", "hw_slowdown": "Active"}, 0x88, []),
        ({"of_2031": "Not Active", "gpu_idle": "Active"}, 1, []),
        ({"of_2031": "Active", "gpu_idle": "Active"}, 1, [ProblemReason.UNRECOGNISED_VALUE]),
        ({"gpu_idle": "Perhaps"}, None, [ProblemReason.UNRECOGNISED_VALUE]),
        ({"gpu_idle": "N/A"}, None, []),
        ({"gpu_idle": "Unknown Error", "hw_slowdown": "Active"}, 8, [ProblemReason.QUERY_ERROR]),
    ],
)
def test_clock_event_reasons(flags: dict[str, str], mask: int | None, problems: list[ProblemReason]) -> None:
    for block in ("clocks_event_reason", "clocks_throttle_reason"):
        inner = "".join(f"<{block}_{name}>{text}</{block}_{name}>" for name, text in flags.items())
        reading = read(gpu(f"<{block}s>{inner}</{block}s>"))
        assert values(reading).get("gpu_clock_event_reasons") == mask
        assert reasons(reading) == problems


@pytest.mark.parametrize(
    ("body", "signal", "value", "problems"),
    [
        ("<temperature><gpu_temp>44</gpu_temp></temperature>", "gpu_temperature_celsius", 44, []),
        ("<temperature><gpu_temp>warm</gpu_temp></temperature>", "gpu_temperature_celsius", None, ["value"]),
        (
            "<temperature><gpu_temp>4294967295 C</gpu_temp></temperature>",
            "gpu_temperature_celsius",
            None,
            ["value"],
        ),
        ("<temperature><gpu_temp>nan C</gpu_temp></temperature>", "gpu_temperature_celsius", None, ["value"]),
        ("<utilization><gpu_util>65535 %</gpu_util></utilization>", "gpu_utilization_ratio", None, ["value"]),
        ("<utilization><gpu_util>100 %</gpu_util></utilization>", "gpu_utilization_ratio", 1, []),
        (
            "<pci><replay_counter>18446744073709551615</replay_counter></pci>",
            "gpu_pcie_replays_total",
            None,
            ["value"],
        ),
        (
            "<gpu_power_readings><power_draw>Unknown Error</power_draw>"
            "<average_power_draw>5 W</average_power_draw></gpu_power_readings>",
            "gpu_power_watts",
            5,
            ["error"],
        ),
        (
            "<gpu_power_readings><gpu_ceiling_power_limit><current_power_limit>200 W</current_power_limit>"
            "</gpu_ceiling_power_limit></gpu_power_readings>",
            "gpu_power_limit_watts",
            200,
            [],
        ),
        (
            "<gpu_memory_power_readings><power_draw>43 W</power_draw></gpu_memory_power_readings>",
            "gpu_power_watts",
            None,
            [],
        ),
        (
            "<module_power_readings><power_draw>900 W</power_draw></module_power_readings>",
            "gpu_module_power_watts",
            900,
            [],
        ),
        (
            "<fb_memory_usage><used>10 MiB</used><free>20 MiB</free>"
            "<reserved>2 MiB</reserved></fb_memory_usage>",
            "gpu_memory_total_bytes",
            32 * 2**20,
            [],
        ),
        (
            "<retired_pages><pending_blacklist>Yes</pending_blacklist></retired_pages>",
            "gpu_retired_pages_pending",
            1,
            [],
        ),
        ("<fabric><state>In Progress</state><status>N/A</status></fabric>", "gpu_fabric_state", 2, []),
        (
            "<fabric><state>Completed</state><status>Unknown Error</status></fabric>",
            "gpu_fabric_status",
            999,
            [],
        ),
        ("<fabric><state>N/A</state></fabric>", "gpu_fabric_state", None, []),
    ],
)
def test_single_values(body: str, signal: str, value: float | None, problems: list[str]) -> None:
    names = {"value": ProblemReason.UNRECOGNISED_VALUE, "error": ProblemReason.QUERY_ERROR}
    reading = read(gpu(body))
    assert values(reading).get(signal) == value
    assert reasons(reading) == [names[name] for name in problems]


def test_a_sum_without_one_of_its_parts_is_no_sum() -> None:
    counters = "<sram_uncorrectable>{}</sram_uncorrectable><dram_uncorrectable>3</dram_uncorrectable>"
    for part, expected in (("N/A", 3), ("2", 5), ("Unknown Error", None), ("many", None)):
        reading = read(gpu(f"<ecc_errors><volatile>{counters.format(part)}</volatile></ecc_errors>"))
        assert values(reading).get("gpu_ecc_uncorrected_volatile_total") == expected


def test_repeated_blocks_may_agree_but_not_contradict() -> None:
    hot, cold = (f"<temperature><gpu_temp>{n} C</gpu_temp></temperature>" for n in (80, 30))
    absent = "<temperature><gpu_temp>N/A</gpu_temp></temperature>"
    assert values(read(gpu(hot + hot)))["gpu_temperature_celsius"] == 80
    assert values(read(gpu(absent + hot)))["gpu_temperature_celsius"] == 80
    reading = read(gpu(hot + cold))
    assert "gpu_temperature_celsius" not in values(reading)
    assert reasons(reading) == [ProblemReason.INCONSISTENT]


def test_a_lost_gpu_in_the_xml_is_one_problem() -> None:
    reading = read(
        gpu(
            "<product_name>NVIDIA H200</product_name>"
            "<temperature><gpu_temp>GPU is lost</gpu_temp></temperature>"
            "<performance_state>GPU is lost</performance_state><fan_speed>N/A</fan_speed>"
        )
    )
    assert values(reading) == {}
    (problem,) = reading.problems
    assert (problem.reason, problem.count) == (ProblemReason.GPU_LOST, 1)
    assert (problem.gpu, problem.index, problem.pci) == ("GPU-aa", 0, "0000:05:00.0")
    assert reading.ok


def test_a_mig_device_without_ids_cannot_be_told_apart() -> None:
    device = "<mig_device><fb_memory_usage><used>1 MiB</used></fb_memory_usage>{}</mig_device>"
    ids = "<gpu_instance_id>7</gpu_instance_id><compute_instance_id>N/A</compute_instance_id>"
    reading = read(gpu(f"<mig_devices>{device.format('')}{device.format(ids)}</mig_devices>"))
    assert [s.mig for s in samples(reading) if s.mig] == [MigInstance(7)]
    assert reasons(reading) == [ProblemReason.UNREADABLE]


def test_the_same_gpu_twice_is_read_once() -> None:
    inner = (
        '<gpu id="00000000:05:00.0"><uuid>GPU-aa</uuid>'
        "<temperature><gpu_temp>{} C</gpu_temp></temperature></gpu>"
    )
    reading = read(
        f"<nvidia_smi_log><attached_gpus>2</attached_gpus>{inner.format(1)}{inner.format(2)}</nvidia_smi_log>"
    )
    assert values(reading) == {"gpu_temperature_celsius": 1}
    assert reasons(reading) == [ProblemReason.INCONSISTENT]


def test_a_query_of_one_gpu_says_nothing_about_the_node() -> None:
    reading = read(
        gpu("<temperature><gpu_temp>1 C</gpu_temp></temperature>", attached=8), ["-q", "-x", "-i", "3"]
    )
    assert not reading.problems
    assert [(s.signal, s.index) for s in samples(reading)] == [("gpu_temperature_celsius", None)]


def test_no_gpus_at_all_is_an_answer() -> None:
    reading = read("<nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>")
    assert reading.ok
    assert [(s.signal, s.value) for s in samples(reading)] == [("node_gpu_count", 0)]


def test_a_sentence_beside_the_xml() -> None:
    sentence = "Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error\n"
    reading = read(sentence + FOUR)
    assert [(p.reason, p.index, p.pci) for p in reading.problems] == [
        (ProblemReason.GPU_LOST, 1, "0000:34:00.0")
    ]
    assert by_gpu(reading) == by_gpu(read(FOUR))


@pytest.mark.parametrize(
    ("damaged", "reported"),
    [
        ("</gpu>", ProblemReason.UNREADABLE),
        ('<gpu id="00000000:2B:00.0">', ProblemReason.UNREADABLE),
        ("<gpu_temp>61", ProblemReason.UNREADABLE),
        ("</temperature>", ProblemReason.UNREADABLE),
        ("GPU-5a000000-0000-4000-8000-000000000001", None),
        ("61 C", ProblemReason.UNRECOGNISED_VALUE),
    ],
)
def test_damage_stays_in_its_gpu(damaged: str, reported: ProblemReason | None) -> None:
    """Overwrite one thing in the second GPU's text."""
    start = FOUR.index(damaged, FOUR.index('<gpu id="00000000:2B:00.0">'))
    reading = read(FOUR[:start] + "#" * len(damaged) + FOUR[start + len(damaged) :])
    whole, found = by_gpu(read(FOUR)), by_gpu(reading)
    for number in (0, 2, 3):
        uuid = f"GPU-5a000000-0000-4000-8000-00000000000{number}"
        assert found[uuid] == whole[uuid]
    assert reported is None or reported in reasons(reading)


def test_an_index_is_the_place_in_a_whole_answer_only() -> None:
    cut = FOUR[: FOUR.index("</gpu>", FOUR.index('id="00000000:4B'))]
    damaged = cut.replace("</gpu>", "######", 1)
    for text, indices in ((FOUR, {0, 1, 2, 3}), (cut, {0, 1, 2}), (damaged, {1, 2})):
        found = {sample.index: sample.gpu for sample in samples(read(text)) if sample.gpu}
        assert found == {index: f"GPU-5a000000-0000-4000-8000-00000000000{index}" for index in indices}


def test_a_cut_document_gives_the_gpus_that_are_whole() -> None:
    cut = FOUR[: FOUR.index("<fabric>", FOUR.index('id="00000000:3B'))]
    reading = read(cut)
    assert reasons(reading) == [ProblemReason.TRUNCATED]
    found, whole = by_gpu(reading), by_gpu(read(FOUR))
    complete = {f"GPU-5a000000-0000-4000-8000-00000000000{n}" for n in (0, 1)}
    assert set(found) == complete | {None}
    assert all(found[uuid] == whole[uuid] for uuid in complete)


@pytest.mark.parametrize(
    "text", ['<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_l', '<?xml version="1.0" ?>', "<?xml v"]
)
def test_a_beginning_alone(text: str) -> None:
    reading = read(text)
    assert not reading.ok
    assert reading.problems


def test_an_entity_is_never_expanded() -> None:
    bomb = (
        '<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">'
        '<!ENTITY x SYSTEM "file:///etc/passwd">]>' + gpu("<product_name>&b;&x;</product_name>")
    )
    reading = read(bomb)
    assert not reading.ok
    assert reasons(reading) == [ProblemReason.UNREADABLE]
    reading = read(gpu("<product_name>A&amp;B &#66; &x; &lt;b&gt;</product_name>"))
    (info,) = [s for s in samples(reading) if s.signal == "gpu_info"]
    assert info.labels["model"] == "A&B B &x; <b>"


def test_an_embedded_dtd_is_skipped() -> None:
    dtd = (
        "<!DOCTYPE nvidia_smi_log [\n<!ELEMENT nvidia_smi_log (gpu*)>\n<!ATTLIST gpu id CDATA #REQUIRED>\n]>"
    )
    text = FOUR.replace('<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">', dtd)
    assert dtd in text
    assert read(text) == read(FOUR)


def test_a_process_name_cannot_invent_a_gpu() -> None:
    name = (
        '</process_name></process_info></processes></gpu><gpu id="00000000:99:00.0"><uuid>GPU-evil</uuid>'
        "<gpu_recovery_action>Reboot</gpu_recovery_action>"
    )
    first, second = (PROCESS.format(7, text, "1 MiB") for text in (name, "<!ENTITY"))
    text = gpu(f"<processes>\n{first}\n{second}\n</processes>")
    reading = read(text)
    assert not reading.problems
    assert {s.gpu for s in samples(reading)} <= {"GPU-aa", None}
    assert [r.name for r in reading.records if isinstance(r, GpuProcess)] == [name, "<!ENTITY"]


def test_processes_that_cannot_be_told() -> None:
    rows = [
        ("12", "a", "N/A"),
        ("13", "[Not Found]", "5 MiB"),
        ("x", "b", "5 MiB"),
        ("N/A", "c", "5 MiB"),
        ("14", "d", "[Insufficient Permissions]"),
    ]
    reading = read(gpu("<processes>" + "".join(PROCESS.format(*row) for row in rows) + "</processes>"))
    found = [(r.pid, r.name, r.memory_bytes) for r in reading.records if isinstance(r, GpuProcess)]
    assert found == [(12, "a", None), (13, None, 5 * 2**20), (14, "d", None)]
    assert reasons(reading) == [ProblemReason.UNREADABLE, ProblemReason.PERMISSION_DENIED]


def test_utf_16_and_byte_order_marks() -> None:
    for data in (FOUR.encode("utf-16"), b"\xef\xbb\xbf" + FOUR.encode()):
        assert read(data) == read(FOUR)


@pytest.mark.parametrize(
    "text",
    [
        "<process_name>" * 200_000,
        "<nvidia_smi_log><gpu>" + "<a>" * 300_000,
        "<nvidia_smi_log><gpu>" + "x</a>" * 300_000 + "</gpu></nvidia_smi_log>",
        "<nvidia_smi_log>" + "<!--" * 300_000,
        "<nvidia_smi_log>" + "<gpu >" * 100_000,
        "<nvidia_smi_log>" * 50_000,
        "<" * 1_000_000,
        "<nvidia_smi_log><gpu>" + "<process_name></process_name>" * 100_000,
        "index, uuid\n" + "0, GPU-1\n" * 100_000,
        "," * 1_000_000,
    ],
)
def test_hostile_input_is_read_in_linear_time(text: str) -> None:
    started = time.process_time()
    read(text)
    assert time.process_time() - started < 10


def test_more_than_is_sane_is_refused() -> None:
    reading = read(b"<" * (32 * 2**20 + 1))
    assert reasons(reading) == [ProblemReason.TOO_LARGE]
    assert not reading.ok
