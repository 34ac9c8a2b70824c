"""What the text of an exporter says, family by family."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from prometheus_client import generate_latest

from collector.exporters.classes import OutReason
from collector.exporters.summary import MAX_PARTITIONS, LabelBudget
from fleet.clock import ManualClock
from fleet.metric_names import SCHEDULER_METRICS, SLURM_METRICS, MetricType

if TYPE_CHECKING:
    from tests.collector.exporters.conftest import Exporter

START = ManualClock().now()
_TYPES = {"gauge": MetricType.GAUGE, "counter": MetricType.COUNTER, "histogram": MetricType.HISTOGRAM}


def test_every_gpu_is_counted_once_whatever_partitions_its_node_is_in(exporter: Exporter) -> None:
    of_small = {"pool": "small", "gpu_type": "h100"}
    assert exporter.total("sickbay_scheduler_gpus") == 40
    assert exporter.value("sickbay_scheduler_gpus", **of_small, status="allocated", reason="none") == 6
    assert exporter.value("sickbay_scheduler_gpus", **of_small, status="idle", reason="none") == 10
    assert {
        reason.value: exporter.total("sickbay_scheduler_gpus", status="unavailable", reason=reason.value)
        for reason in OutReason
        if exporter.total("sickbay_scheduler_gpus", status="unavailable", reason=reason.value)
    } == {"drained_by_sickbay": 6, "drained_by_others": 8, "down": 8}


def test_a_partition_shows_all_its_nodes_also_those_it_shares(exporter: Exporter) -> None:
    assert exporter.total("sickbay_partition_gpus", partition="gpu") == 40
    assert exporter.total("sickbay_partition_gpus", partition="debug") == 16
    assert exporter.total("sickbay_partition_nodes", partition="gpu") == 6
    assert exporter.value("sickbay_partition_nodes", partition="debug", state="mixed") == 1
    assert exporter.value("sickbay_partition_nodes", partition="debug", state="down") == 0


def test_nodes_by_pool_state_and_owner(exporter: Exporter) -> None:
    assert exporter.total("sickbay_scheduler_nodes") == 7
    name = "sickbay_scheduler_nodes"
    assert exporter.value(name, pool="rest", state="draining", owner="sickbay") == 1
    assert exporter.value(name, pool="rest", state="drained", owner="foreign") == 1
    assert exporter.value(name, pool="rest", state="drained", owner="sickbay") == 0
    assert exporter.value(name, pool="small", state="down", owner="none") == 0


def test_a_node_with_an_unknown_number_of_gpus_is_said_apart(exporter: Exporter) -> None:
    assert exporter.value("sickbay_scheduler_nodes_unknown_gpus", pool="rest") == 1
    assert exporter.value("sickbay_scheduler_nodes_unknown_gpus", pool="small") == 0


def test_the_queue_as_a_whole_counts_each_job_once(exporter: Exporter) -> None:
    assert exporter.value("sickbay_scheduler_jobs", state="pending") == 6  # an array's rest is three
    assert exporter.value("sickbay_scheduler_jobs", state="running") == 2
    assert exporter.value("sickbay_scheduler_jobs", state="suspended") == 0
    assert exporter.value("sickbay_scheduler_pending_jobs", reason="held") == 3
    assert exporter.value("sickbay_scheduler_pending_jobs", reason="resources") == 3
    assert exporter.value("sickbay_scheduler_pending_gpus", size="2-8") == 8
    assert exporter.value("sickbay_scheduler_pending_gpus", size="9-64") == 48


def test_a_job_that_waits_in_two_partitions_waits_in_both(exporter: Exporter) -> None:
    assert exporter.value("sickbay_partition_jobs", partition="gpu", state="pending") == 5
    assert exporter.value("sickbay_partition_jobs", partition="debug", state="pending") == 1
    assert exporter.value("sickbay_partition_jobs", partition="(none)", state="pending") == 1
    assert exporter.value("sickbay_partition_pending_gpus", partition="debug", size="2-8") == 8


def test_gpus_nobody_can_count_are_not_zero_gpus(exporter: Exporter) -> None:
    assert exporter.value("sickbay_scheduler_pending_jobs_unknown_size") == 1
    assert exporter.value("sickbay_partition_pending_jobs_unknown_size", partition="gpu") == 1
    for size in ("unknown", "part", "cpu"):
        assert exporter.value("sickbay_scheduler_pending_gpus", size=size) is None


def test_the_oldest_waiting_job_and_never_one_that_waits_by_choice(exporter: Exporter) -> None:
    name = "sickbay_scheduler_oldest_pending_timestamp_seconds"
    assert exporter.value(name, size="2-8") == START - 500.0
    assert exporter.value(name, size="9-64") is None


def test_a_start_is_in_the_histogram_of_its_partition_and_size(exporter: Exporter) -> None:
    labels = {"partition": "gpu", "size": "2-8"}
    name = "sickbay_partition_queue_wait_seconds"
    assert exporter.value(f"{name}_count", **labels) == 1
    assert exporter.value(f"{name}_sum", **labels) == 130.0
    assert exporter.value(f"{name}_bucket", **labels, le="60.0") == 0
    assert exporter.value(f"{name}_bucket", **labels, le="300.0") == 1
    assert exporter.value(f"{name}_bucket", **labels, le="+Inf") == 1
    assert exporter.value(f"{name}_count", partition="gpu", size="9-64") == 0


def test_when_the_scheduler_cannot_be_read_only_up_age_and_counters_stay(exporter: Exporter) -> None:
    assert "sickbay_scheduler_gpus" in exporter.families()
    assert exporter.value("sickbay_scheduler_exporter_up") == 1

    exporter.poller.poll()

    assert exporter.value("sickbay_scheduler_exporter_up") == 0
    assert exporter.value("sickbay_scheduler_exporter_last_read_timestamp_seconds") == START + 30.0
    assert exporter.value("sickbay_scheduler_exporter_reads_total") == 3
    assert exporter.value("sickbay_scheduler_exporter_read_failures_total", reason="unavailable") == 1
    assert exporter.families() == {
        "sickbay_scheduler_exporter_build",
        "sickbay_scheduler_exporter_up",
        "sickbay_scheduler_exporter_interval_seconds",
        "sickbay_scheduler_exporter_last_read_timestamp_seconds",
        "sickbay_scheduler_exporter_read_duration_seconds",
        "sickbay_scheduler_exporter_reads",
        "sickbay_scheduler_exporter_read_failures",
        "sickbay_partition_queue_wait_seconds",
        "sickbay_partition_starts_unknown_wait",
    }


def test_the_catalogue_of_names_is_what_is_exported(exporter: Exporter) -> None:
    shown: dict[str, tuple[MetricType, set[str]]] = {}
    for family in exporter.registry.collect():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        name = {"counter": f"{family.name}_total", "info": f"{family.name}_info"}.get(
            family.type, family.name
        )
        shown[name] = (_TYPES.get(family.type, MetricType.GAUGE), labels)

    named = {one.name: (one.type, set(one.labels)) for one in (*SCHEDULER_METRICS, *SLURM_METRICS)}
    assert shown == named


def test_labels_come_from_short_lists() -> None:
    budget = LabelBudget(MAX_PARTITIONS)
    labels = [budget(f"p{number}") for number in range(MAX_PARTITIONS + 50)]

    assert len(set(labels)) == MAX_PARTITIONS + 1
    assert labels[-1] == "(other)"
    assert budget("p0") == "p0"  # a name once given stays, so series do not change hands


def test_no_series_is_there_twice(exporter: Exporter) -> None:
    lines = [line for line in generate_latest(exporter.registry).decode().splitlines() if line[0] != "#"]
    names = [line.rpartition(" ")[0] for line in lines]
    assert len(names) == len(set(names))
    assert not [name for name in names if re.search(r"_created(\{|$)", name)]


@pytest.mark.services
def test_promtool_finds_nothing_to_say(exporter: Exporter) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is missing: apt-get install prometheus"
    texts = [generate_latest(exporter.registry)]
    exporter.poller.poll()  # and with the scheduler away
    texts.append(generate_latest(exporter.registry))
    for text in texts:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
