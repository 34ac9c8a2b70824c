"""The boards as Grafana reads them: shape, places, units, thresholds, links, and the linter's rules."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from collector.signals import SignalKind, load_signals
from dashboards.build import files
from dashboards.checks import known_series
from dashboards.grafana import COLUMNS, DATASOURCE, SCHEMA_VERSION
from fleet.metric_names import (
    AVAILABILITY_OBJECTIVE,
    EXPORTED_METRICS,
    STALE_AGENT_SECONDS,
    STALE_EVALUATION_SECONDS,
    STALE_PASS_SECONDS,
    STALE_SCHEDULER_SECONDS,
    MetricType,
    names_in,
)

Json = dict[str, Any]
BOARDS: dict[str, Json] = {name.removesuffix(".json"): json.loads(text) for name, text in files().items()}
UIDS = sorted(BOARDS)
PANEL_TYPES = {"stat", "timeseries", "table", "state-timeline"}
# Grafana's packages/grafana-data/src/valueFormats/categories.ts, what we use of it.
UNITS = {"short", "none", "percentunit", "s", "celsius", "watt", "hertz", "bytes", "cps"}
# What panels of Grafana before 8 had and no release reads any more.
DEAD_KEYS = {"rows", "style", "sharedCrosshair", "hideControls", "__inputs", "gauge", "xaxis", "yaxes"}
DEAD_KEYS |= {"fieldOptions", "valueName", "colorBackground", "nullPointMode", "seriesOverrides"}
RAW_COUNTERS = {
    ("sickbay-node", "Uncorrected errors"): "the count since the driver was loaded is the fact, not its rate",
    ("sickbay-fleet", "Nodes whose GPUs show a fault"): "any error since the driver was loaded is a sign",
}
FIXED_WINDOWS = {
    ("sickbay-node", "ECC errors"): "errors are rare: an hour per point is what one can read",
}


def panels(uid: str) -> list[Json]:
    return [panel for panel in BOARDS[uid]["panels"] if panel["type"] != "row"]


def every_panel() -> Iterator[tuple[str, Json]]:
    for uid in UIDS:
        for panel in panels(uid):
            yield uid, panel


PANELS = list(every_panel())
IDS = [f"{uid}: {panel['title']}" for uid, panel in PANELS]
each_panel = pytest.mark.parametrize(("uid", "panel"), PANELS, ids=IDS)


def each_of(*types: str) -> pytest.MarkDecorator:
    chosen = [(uid, panel) for uid, panel in PANELS if panel["type"] in types]
    assert chosen
    return pytest.mark.parametrize(("uid", "panel"), chosen, ids=[panel["title"] for _, panel in chosen])


each_board = pytest.mark.parametrize("uid", UIDS)


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, item
            yield from walk(item)
    elif isinstance(value, list):
        for item in value:
            yield from walk(item)


# -- the document


@each_board
def test_the_document_is_what_a_modern_grafana_saves(uid: str) -> None:
    board = BOARDS[uid]
    assert board["uid"] == uid
    assert re.fullmatch(r"[a-z0-9-]{1,40}", uid)
    assert board["schemaVersion"] == SCHEMA_VERSION == 41
    assert board["title"]
    assert board["description"]
    assert board["editable"] is False
    assert "version" not in board
    assert "id" not in board, "provisioning gives it"
    assert board["timezone"] == "browser"
    assert {key for key, _ in walk(board)}.isdisjoint(DEAD_KEYS)
    assert [key for key, value in walk(board) if value is None] == []


def test_titles_are_unique() -> None:
    assert len({board["title"] for board in BOARDS.values()}) == len(BOARDS)
    for uid in UIDS:
        titles = Counter(panel["title"] for panel in BOARDS[uid]["panels"])
        assert [title for title, count in titles.items() if count > 1] == []


@each_board
def test_ids_are_unique_and_stable(uid: str) -> None:
    ids = [panel["id"] for panel in BOARDS[uid]["panels"]]
    assert ids == list(range(1, len(ids) + 1))


@each_board
def test_panels_do_not_overlap_and_stay_inside(uid: str) -> None:
    places = [(panel["title"], panel["gridPos"]) for panel in BOARDS[uid]["panels"]]
    for title, at in places:
        assert 0 <= at["x"] < at["x"] + at["w"] <= COLUMNS, title
        assert at["h"] > 0, title
    for (one, a), (other, b) in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, f"{one} and {other}"


# -- variables and links


@each_board
def test_the_data_source_is_a_variable_and_the_only_one_asked(uid: str) -> None:
    board = BOARDS[uid]
    first = board["templating"]["list"][0]
    assert (first["name"], first["label"], first["type"], first["query"]) == (
        "datasource",
        "Data source",
        "datasource",
        "prometheus",
    )
    asked = [value for key, value in walk(board) if key == "datasource"]
    assert asked
    assert all(source == DATASOURCE for source in asked)
    assert DATASOURCE["uid"] == "${datasource}"


def variables(uid: str) -> dict[str, Json]:
    return {variable["name"]: variable for variable in BOARDS[uid]["templating"]["list"]}


@each_board
def test_every_variable_used_is_declared_and_used(uid: str) -> None:
    board = BOARDS[uid]
    text = json.dumps([panel.get("targets") for panel in board["panels"]])
    used = set(re.findall(r"\$(?!__)(\w+)", text)) | {"datasource"}
    queries = json.dumps([variable.get("definition", "") for variable in board["templating"]["list"]])
    used |= set(re.findall(r"\$(?!__)(\w+)", queries))
    assert used == set(variables(uid))


def test_the_overview_asks_by_cluster_and_pool_the_node_board_by_node() -> None:
    assert list(variables("sickbay-fleet")) == ["datasource", "cluster", "pool"]
    assert list(variables("sickbay-node")) == ["datasource", "cluster", "node"]
    assert all('cluster=~"$cluster"' in t["expr"] for _, panel in PANELS for t in panel["targets"])
    counted = re.compile(r"sickbay_(?:nodes|incidents_open)\{([^}]*)\}")
    for _, panel in PANELS:
        for target in panel["targets"]:
            assert all('pool=~"$pool"' in matchers for matchers in counted.findall(target["expr"]))


@each_board
def test_variables_follow_the_time_range_and_all_means_all(uid: str) -> None:
    for name, variable in variables(uid).items():
        if name == "datasource":
            continue
        assert variable["refresh"] == 2, name
        assert variable["multi"] is True, name
        if name == "node":
            # Eight GPUs a line each: a whole fleet on one board would be neither quick nor legible.
            assert variable["includeAll"] is False
        else:
            # A site with one cluster may set no such label: All must match its absence, too.
            assert (variable["includeAll"], variable["allValue"]) == (True, ".*"), name


@each_board
def test_links_between_boards_keep_time_and_variables(uid: str) -> None:
    (link,) = BOARDS[uid]["links"]
    assert (link["type"], link["tags"]) == ("dashboards", ["sickbay"])
    assert link["includeVars"] is True
    assert link["keepTime"] is True
    assert "sickbay" in BOARDS[uid]["tags"]


def test_drill_down_leads_to_a_board_that_exists_with_its_variables() -> None:
    urls = [value for _, panel in PANELS for key, value in walk(panel) if key == "url"]
    assert len(urls) == 2, "findings, and GPUs that show a fault"
    for url in urls:
        path, _, query = url.partition("?")
        target = path.removeprefix("/d/")
        assert target in BOARDS
        assert "${datasource:queryparam}" in query, "else the default data source is asked"
        assert "${cluster:queryparam}" in query
        assert "${__url_time_range}" in query
        assert set(re.findall(r"var-(\w+)=", query)) <= set(variables(target))


# -- panels


@each_panel
def test_a_panel_says_what_it_shows(uid: str, panel: Json) -> None:
    assert panel["type"] in PANEL_TYPES
    assert panel["title"]
    assert len(panel["description"]) > 15
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS


@each_panel
def test_targets_are_named_and_complete(uid: str, panel: Json) -> None:
    refs = [target["refId"] for target in panel["targets"]]
    assert refs == list("ABCDEFGH"[: len(refs)])
    for target in panel["targets"]:
        assert target["instant"] is not target["range"]
        assert target["legendFormat"]
        assert target["editorMode"] == "code"


@each_panel
def test_thresholds_begin_at_minus_infinity_and_rise(uid: str, panel: Json) -> None:
    thresholds = panel["fieldConfig"]["defaults"]["thresholds"]
    steps = thresholds["steps"]
    assert thresholds["mode"] == "absolute"
    assert "value" not in steps[0], "Grafana reads minus infinity"
    values = [step["value"] for step in steps[1:]]
    assert values == sorted(set(values))
    assert all(step["color"] for step in steps)


@each_of("stat", "table")
def test_a_number_is_one_of_now_or_no_data(uid: str, panel: Json) -> None:
    """``lastNotNull`` over a range would show what ended hours ago as if it were so now."""
    assert [target["instant"] for target in panel["targets"]] == [True]
    if panel["type"] == "stat":
        assert panel["fieldConfig"]["defaults"]["noValue"] == "no data"


@each_of("timeseries")
def test_only_parts_of_a_whole_are_stacked(uid: str, panel: Json) -> None:
    stacking = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"]
    whole = panel["title"] in {"Nodes by state", "Nodes by verdict"}
    assert stacking == ("normal" if whole else "none")


@each_of("table")
def test_tables_show_columns_that_their_query_gives(uid: str, panel: Json) -> None:
    (target,) = panel["targets"]
    assert target["format"] == "table"
    by_id = {step["id"]: step["options"] for step in panel["transformations"]}
    shown = by_id["filterFieldsByName"]["include"]["names"]
    grouped = re.match(r"(?:sum|max|count) by \(([^)]*)\)", target["expr"])
    assert grouped is not None
    assert set(shown) == {*re.split(r",\s*", grouped[1]), "Value"}
    renamed = by_id["organize"]["renameByName"]
    headings = set(renamed.values())
    assert len(headings) == len(shown)
    for override in panel["fieldConfig"]["overrides"]:
        assert override["matcher"]["options"] in headings


def test_boards_show_the_limits_that_alerts_use() -> None:
    limits = {
        ("sickbay-fleet", "Last pass"): STALE_PASS_SECONDS,
        ("sickbay-fleet", "Scheduler last read"): STALE_SCHEDULER_SECONDS,
        ("sickbay-fleet", "Oldest agent push"): STALE_AGENT_SECONDS,
        ("sickbay-fleet", "Last evaluation"): STALE_EVALUATION_SECONDS,
        ("sickbay-node", "Agent's last push"): STALE_AGENT_SECONDS,
        ("sickbay-fleet", "Availability"): AVAILABILITY_OBJECTIVE,
    }
    shown = {
        (uid, panel["title"]): panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]
        for uid, panel in PANELS
        if (uid, panel["title"]) in limits
    }
    assert shown == limits


def test_states_and_verdicts_have_colours_of_their_own() -> None:
    for title in ("Nodes by state", "Nodes by verdict"):
        (panel,) = [panel for _, panel in PANELS if panel["title"] == title]
        colours = [
            override["properties"][0]["value"]["fixedColor"] for override in panel["fieldConfig"]["overrides"]
        ]
        assert len(colours) == len(set(colours)) > 1


# -- queries


COUNTERS = {
    *(metric.name for metric in EXPORTED_METRICS if metric.type is MetricType.COUNTER),
    *(s.metric_name for s in load_signals().values() if s.kind is SignalKind.COUNTER),
    *(name for metric in EXPORTED_METRICS if metric.type is MetricType.HISTOGRAM for name in metric.series),
}


@each_panel
def test_queries_ask_for_known_names_only(uid: str, panel: Json) -> None:
    for target in panel["targets"]:
        names = set(names_in(target["expr"]))
        assert names
        assert names <= known_series()


def is_rated(expr: str, counter: str) -> bool:
    return len(re.findall(rf"\b{counter}\b", expr)) == len(
        re.findall(rf"\b(?:rate|increase)\({counter}\b", expr)
    )


def test_counters_are_rated_but_where_a_reason_says_otherwise() -> None:
    raw = {
        (uid, panel["title"])
        for uid, panel in PANELS
        for target in panel["targets"]
        for name in names_in(target["expr"])
        if name in COUNTERS and not is_rated(target["expr"], name)
    }
    assert raw == set(RAW_COUNTERS)


def test_rates_follow_the_scrape_interval_but_where_a_reason_says_otherwise() -> None:
    fixed = {
        (uid, panel["title"])
        for uid, panel in PANELS
        for target in panel["targets"]
        if set(re.findall(r"\[([^\]]+)\]", target["expr"])) - {"$__rate_interval"}
    }
    assert fixed == set(FIXED_WINDOWS)


def test_only_counters_are_rated() -> None:
    for _, panel in PANELS:
        for target in panel["targets"]:
            rated = set(re.findall(r"\b(?:rate|increase)\(([\w:]+)", target["expr"]))
            assert rated <= COUNTERS
