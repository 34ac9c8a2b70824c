"""A board that asks for a metric nobody exports is not built."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import fleet, node
from dashboards.build import files
from dashboards.checks import UnknownMetricError, check_query
from dashboards.grafana import Query, finish, stat
from fleet.metric_names import EXPORTED_METRICS, names_in, unused

NAMES = (
    ("up", ["up"]),
    ('sum by (node, gpu) (rate(a_total{node=~"$node"}[$__rate_interval]))', ["a_total"]),
    ("histogram_quantile(0.99, sum by (le) (rate(a_bucket[5m])))", ["a_bucket"]),
    ("a / on (x) group_left (y) b", ["a", "b"]),
    ("a unless on () b or absent(c)", ["a", "b", "c"]),
    ('label_replace(a, "dst", "$1", "src", "(.*) b")', ["a"]),
    ("cluster:a:ratio offset 5m > bool 1e3", ["cluster:a:ratio"]),
    ("max without (instance, pod) (a{b='c}d'}) or 0 * vector(1)", ["a"]),
    ("time() - max(a) > Inf", ["a"]),
    ("count(a > 0 unless b > 0) and a", ["a", "b", "a"]),
)


@pytest.mark.parametrize(("expression", "expected"), NAMES)
def test_names_of_an_expression(expression: str, expected: list[str]) -> None:
    assert list(names_in(expression)) == expected


@given(st.text(max_size=200))
def test_any_text_has_names_or_none(text: str) -> None:
    assert all(re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name) for name in names_in(text))


def test_an_unknown_name_is_refused_with_the_name() -> None:
    with pytest.raises(UnknownMetricError, match="sickbay_invented_total"):
        check_query("rate(sickbay_invented_total[5m]) / sickbay_nodes")
    with pytest.raises(UnknownMetricError, match="DCGM_FI_DEV_GPU_TEMP"):
        stat(
            "T",
            "Raw names are for the recording rules.",
            unit="celsius",
            query=Query(expr="DCGM_FI_DEV_GPU_TEMP"),
        )


def test_unused_names_are_listed() -> None:
    everything = [series for metric in EXPORTED_METRICS for series in metric.series]
    assert unused(everything) == ()
    assert unused(()) == tuple(metric.name for metric in EXPORTED_METRICS)
    assert "sickbay_pass_duration_seconds" not in unused(["rate(sickbay_pass_duration_seconds_bucket[5m])"])
    assert "sickbay_leader" in unused(["sickbay_pages"])


def test_boards_leave_no_number_of_the_fleet_unshown() -> None:
    expressions = [
        target["expr"]
        for board in (fleet.board(), node.board())
        for panel in finish(board)["panels"]
        for target in panel.get("targets", ())
    ]
    left = set(unused(expressions))
    assert "sickbay_nodes" not in left
    assert "sickbay_finding" not in left
    assert "cluster:sickbay_nodes_available:ratio" not in left


def test_two_builds_are_the_same_bytes() -> None:
    assert dict(files()) == dict(files())
    assert all(text.endswith("}\n") and "\r" not in text for text in files().values())
