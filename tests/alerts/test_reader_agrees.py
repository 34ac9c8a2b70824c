"""Captured answers of dcgm-exporter: the recording rules make of them what the scrape reader does."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from alerts.build import files
from collector.dcgm.exposition import parse_labels, parse_line, split_lines
from collector.dcgm.reader import read_dcgm
from fleet.observations import Sample
from rules.catalogue import load_catalogue
from tests.support.promtool import tool

pytestmark = pytest.mark.services
DATA = Path(__file__).parents[1] / "data" / "dcgm"
BODIES = (
    "B-01-v2-legacy-namespace/input.prom",
    "B-02-v3-typical-with-pod-labels/input.prom",
    "B-03-v4-hostname-label-renamed/input.old.prom",
    "B-03-v4-hostname-label-renamed/input.prom",
    "B-04-hostname-is-pod-name/input.prom",
    "B-05-xid-gauge-latched/input.03.prom",
    "B-07-xid-count-sliding-window/input.01.prom",
    "B-07-xid-count-sliding-window/input.clock.prom",
    "B-08-blank-sentinel-values/input.prom",
    "B-12-metrics-vanish-after-upgrade/input.v441.prom",
    "B-12-metrics-vanish-after-upgrade/input.v453.prom",
    "B-19-violation-units-change/input.new.prom",
)
# Rounded the same way on both sides: a product and a quotient differ in their last digit.
INVERSE = 1.0 / 1e-6
EXPRESSION = (
    'round(label_replace({__name__=~"sickbay_gpu_.+"}, "metric", "$1", "__name__", "sickbay_(.+)"), 1e-6)'
)


def quoted(labels: dict[str, str]) -> str:
    escaped = {k: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for k, v in labels.items()}
    return "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(escaped.items())) + "}"


def series(data: bytes) -> dict[str, str]:
    """Prometheus' view of the body: each line a series of the target with our label ``node``."""
    found = {}
    for text in split_lines(data):
        if text and not text.startswith("#"):
            line = parse_line(text, openmetrics=False)
            found[line.name + quoted({**parse_labels(line.labels), "node": "n01"})] = f"{line.value_text}x4"
    return found


def expected(data: bytes) -> dict[str, float]:
    found = {}
    for sample in read_dcgm(data, node="n01", now=0.0).records:
        if isinstance(sample, Sample) and sample.gpu is not None and sample.signal != "gpu_info":
            labels = {"metric": sample.signal, "node": "n01", "uuid": sample.gpu, "gpu": str(sample.index)}
            if sample.mig is not None:
                labels["gi"] = str(sample.mig.gi)
            value = math.floor(sample.value * INVERSE + 0.5) / INVERSE
            found[quoted({**labels, **sample.labels})] = value
    return found


@pytest.mark.parametrize("name", BODIES)
def test_the_rules_read_what_the_reader_reads(name: str, tmp_path: Path) -> None:
    data = (DATA / name).read_bytes()
    wanted = expected(data)
    assert wanted
    story = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": s, "values": v} for s, v in series(data).items()],
                "promql_expr_test": [
                    {
                        "expr": EXPRESSION,
                        "eval_time": "30s",
                        "exp_samples": [{"labels": s, "value": v} for s, v in wanted.items()],
                    }
                ],
            }
        ],
    }
    (tmp_path / "rules.yml").write_text(files(load_catalogue())["prometheus/normalise-dcgm.yml"])
    (tmp_path / "test.yml").write_text(yaml.safe_dump(story))
    answer = tool("promtool", "test", "rules", "test.yml", cwd=tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
