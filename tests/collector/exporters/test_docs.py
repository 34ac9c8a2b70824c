"""docs/exporters.md names what there is, and its queries for p50 and p95 come out right in Prometheus."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from collector.exporters.classes import OutReason, SizeClass, WaitReason
from collector.exporters.poller import FailureReason
from fleet.metric_names import SCHEDULER_METRICS, SLURM_METRICS, names_in

PAGE = (Path(__file__).parents[3] / "docs" / "exporters.md").read_text()
QUERIES = [found.strip() for found in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)]
METRICS = (*SCHEDULER_METRICS, *SLURM_METRICS)


def test_every_metric_has_its_line_and_no_line_is_invented() -> None:
    named = set(re.findall(r"`(sickbay_[a-z_]+)`", PAGE))
    assert named == {metric.name for metric in METRICS}


@pytest.mark.parametrize("words", [OutReason, WaitReason, SizeClass, FailureReason])
def test_every_word_of_a_closed_list_is_told(words: type[OutReason]) -> None:
    missing = [word.value for word in words if not re.search(rf"[`, ]{re.escape(word.value)}[`, ]", PAGE)]
    assert missing == []


def test_the_queries_ask_for_what_is_there() -> None:
    series = {name for metric in METRICS for name in metric.series}
    assert len(QUERIES) >= 6
    for query in QUERIES:
        names = set(names_in(query))
        assert names, query
        assert names <= series, query


@pytest.mark.services
def test_the_quantiles_come_out_right_in_prometheus_also_across_a_restart(tmp_path: Path) -> None:
    """100 starts an hour: 50 within 10 s, 40 between 5 and 15 min, 10 between 1 and 2 h; one counter reset.

    The median is then the bound of the first bucket, and the 95th percentile the middle of 1 h and 2 h.
    """
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is missing: apt-get install prometheus"
    (median, high) = (query for query in QUERIES if query.startswith("histogram_quantile"))
    rising = {"10.0": 50, "300.0": 50, "900.0": 90, "3600.0": 90, "7200.0": 100, "+Inf": 100}
    labels = 'partition="gpu", size="2-8"'
    series = [
        {
            "series": f'sickbay_partition_queue_wait_seconds_bucket{{{labels}, le="{bound}"}}',
            "values": f"0+{step}x12 0+{step}x24",
        }
        for bound, step in rising.items()
    ]
    checks = [
        {
            "expr": query,
            "eval_time": "36h",
            "exp_samples": [{"labels": f"{{{labels}}}", "value": value}],
        }
        for query, value in ((median, 10.0), (high, 5400.0))
    ]
    path = tmp_path / "quantiles.yml"
    test = {"interval": "1h", "input_series": series, "promql_expr_test": checks}
    path.write_text(yaml.safe_dump({"evaluation_interval": "1h", "tests": [test]}))

    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
