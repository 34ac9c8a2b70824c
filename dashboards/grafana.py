"""The only place that knows grafanalib: typed panels in, dashboard JSON of today's shape out.

grafanalib 0.7.1 writes the shape of Grafana 5 (schemaVersion 12, empty refIds, nulls, panel keys that no
release reads any more). Grafana migrates by ``schemaVersion``, so what claims to be modern must be modern:
``finish`` rewrites the document to schemaVersion 41, the one that Grafana 11.6 and 12 write themselves.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards.checks import check_query

SCHEMA_VERSION = 41
COLUMNS = 24
ROW_HEIGHT = 1
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "sickbay"

GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "#808080"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One PromQL query. ``instant``: its value at the end of the time range (numbers and tables have no
    other); else a range.
    """

    expr: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """From ``value`` on the colour holds; a panel's first step has None: from minus infinity."""

    value: float | None
    color: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A query variable (``label_values(...)``) of which several values may be chosen.

    ``every``: all of them may be, and are at first; else the first one is. ``matches_absent``: "All" also
    means series without that label.
    """

    name: str
    label: str
    query: str
    every: bool = True
    matches_absent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel before it has a place. ``width`` in the grid's 24 columns, ``height`` in its units (30 px)."""

    body: core.Panel
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and the panels under it, laid out from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A whole dashboard. ``uid`` is its address for good: links and bookmarks use it."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    tags: tuple[str, ...] = field(default=(TAG,))


# -- panels


def stat(
    title: str,
    description: str,
    *,
    unit: str,
    query: Query,
    steps: Sequence[Step] = (Step(None, BLUE),),
    decimals: int | None = None,
    mappings: Sequence[Json] = (),
    width: int = 4,
    height: int = 4,
) -> Panel:
    """One number (per series): as it is at the end of the time range, or "no data".

    Never the last one of a range: a value that ended hours ago would look like one of now.
    """
    body = core.Stat(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=_targets([replace(query, instant=True)]),
        format=unit,
        decimals=decimals,
        reduceCalc="lastNotNull",
        noValue="no data",
        graphMode="none",
        colorMode="value",
        color={"mode": "thresholds"},
        mappings=list(mappings),
        thresholds=_steps(steps),
        extraJson={"options": {"wideLayout": True, "showPercentChange": False}},
    )
    return Panel(body=body, width=width, height=height)


def timeseries(
    title: str,
    description: str,
    *,
    unit: str,
    queries: Sequence[Query],
    steps: Sequence[Step] = (),
    stacked: bool = False,
    minimum: int | None = None,
    maximum: int | None = None,
    colors: Mapping[str, str] | None = None,
    width: int = 12,
    height: int = 8,
) -> Panel:
    """Lines over time; ``steps`` draws them as lines across; ``stacked`` only for parts of one whole."""
    body = core.TimeSeries(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=_targets(queries),
        unit=unit,
        valueMin=minimum,
        valueMax=maximum,
        thresholds=_steps(steps or (Step(None, GREEN),)),
        thresholdsStyleMode="dashed" if steps else "off",
        fillOpacity=70 if stacked else 0,
        stacking={"mode": "normal" if stacked else "none", "group": "A"},
        showPoints="never",
        lineWidth=1,
        legendDisplayMode="table",
        legendPlacement="right" if width >= COLUMNS // 2 else "bottom",
        legendCalcs=["lastNotNull", "max"],
        tooltipMode="multi",
        tooltipSort="desc",
        overrides=[_color_of(name, color) for name, color in (colors or {}).items()],
        extraJson={"options": {"legend": {"showLegend": True}}},
    )
    return Panel(body=body, width=width, height=height)


def table(
    title: str,
    description: str,
    *,
    unit: str,
    query: Query,
    columns: Mapping[str, str],
    steps: Sequence[Step] = (Step(None, BLUE),),
    links: Mapping[str, str] | None = None,
    width: int = 8,
    height: int = 8,
) -> Panel:
    """The series of one instant query, a row each, largest first.

    ``columns``: label (or ``Value``) -> heading, in order; all else is hidden. ``links``: heading -> URL.
    """
    order = {name: position for position, name in enumerate(columns)}
    value = columns["Value"]
    body = core.Table(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=_targets([replace(query, instant=True)], table=True),
        unit=unit,
        thresholds=_steps(steps),
        transformations=[
            {"id": "filterFieldsByName", "options": {"include": {"names": list(columns)}}},
            {"id": "organize", "options": {"indexByName": order, "renameByName": dict(columns)}},
        ],
        sortBy=[core.TableSortByField(value, desc=True)],
        overrides=[
            {
                "matcher": {"id": "byName", "options": value},
                "properties": [{"id": "custom.cellOptions", "value": {"type": "color-text"}}],
            },
            *(_link_of(heading, url) for heading, url in (links or {}).items()),
        ],
        extraJson={
            "fieldConfig": {
                "defaults": {
                    "color": {"mode": "thresholds"},
                    "custom": {"align": "auto", "cellOptions": {"type": "auto"}},
                }
            },
            "options": {"cellHeight": "sm"},
        },
    )
    return Panel(body=body, width=width, height=height)


def state_timeline(
    title: str,
    description: str,
    *,
    queries: Sequence[Query],
    mappings: Sequence[Json],
    unit: str = "none",
    steps: Sequence[Step] = (Step(None, GREEN), Step(1, RED)),
    width: int = 12,
    height: int = 8,
) -> Panel:
    """A band per series, coloured by value: for flags and codes, where a line would say nothing."""
    body = core.StateTimeline(
        title=title,
        description=description,
        dataSource=DATASOURCE,
        targets=_targets(queries),
        mappings=list(mappings),
        thresholds=_steps(steps),
        showValue="never",
        mergeValues=True,
        extraJson={
            "fieldConfig": {"defaults": {"unit": unit}},
            "options": {"legend": {"showLegend": True}, "tooltip": {"mode": "multi", "sort": "none"}},
        },
    )
    return Panel(body=body, width=width, height=height)


def value_names(names: Mapping[int, tuple[str, str]]) -> Json:
    """A value mapping: number -> (text, colour)."""
    return {
        "type": "value",
        "options": {
            str(value): {"text": text, "color": color, "index": index}
            for index, (value, (text, color)) in enumerate(names.items())
        },
    }


def _targets(queries: Sequence[Query], *, table: bool = False) -> list[core.Target]:
    for query in queries:
        check_query(query.expr)
    return [
        core.Target(
            expr=query.expr,
            legendFormat=query.legend,
            refId=letter,
            instant=query.instant,
            format="table" if table else "time_series",
            datasource=DATASOURCE,
        )
        for letter, query in zip(string.ascii_uppercase, queries, strict=False)
    ]


def _steps(steps: Sequence[Step]) -> list[Json]:
    """The base step carries no value: Grafana reads minus infinity, whatever stands there."""
    return [
        {"color": step.color} if step.value is None else {"color": step.color, "value": step.value}
        for step in steps
    ]


def _color_of(name: str, color: str) -> Json:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
    }


def _link_of(heading: str, url: str) -> Json:
    return {
        "matcher": {"id": "byName", "options": heading},
        "properties": [{"id": "links", "value": [{"title": f"Open this {heading.lower()}", "url": url}]}],
    }


# -- the document


def finish(board: Board) -> Json:
    """The dashboard as Grafana itself would save it: no null, no dead key, ids and places given."""
    document = core.Dashboard(
        title=board.title,
        uid=board.uid,
        description=board.description,
        tags=list(board.tags),
        timezone="browser",
        refresh="30s",
        time=core.Time("now-6h", "now"),
        editable=False,
        links=[
            core.DashboardLink(
                asDropdown=False,
                includeVars=True,
                keepTime=True,
                tags=[TAG],
                title="sickbay",
                type="dashboards",
            )
        ],
        panels=[],
    )
    raw = _plain(document)
    return {
        **{key: raw[key] for key in ("title", "uid", "description", "tags", "timezone", "refresh", "time")},
        "annotations": {"list": []},
        "editable": False,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "links": [_without_empty(link) | {"icon": "dashboard"} for link in raw["links"]],
        "liveNow": False,
        "panels": list(_place(board.rows)),
        "schemaVersion": SCHEMA_VERSION,
        "templating": {"list": [_datasource_variable(), *map(_variable, board.variables)]},
        "timepicker": {},
    }


def render(board: Board) -> str:
    """The committed file: sorted keys, two blanks, one newline at the end."""
    return json.dumps(finish(board), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _plain(thing: Any) -> Any:
    return json.loads(json.dumps(thing, cls=DashboardEncoder))


# What grafanalib writes and no panel of schemaVersion 41 reads.
_DEAD_PANEL_KEYS = frozenset(
    {
        *("cacheTimeout", "color", "columns", "editable", "error", "fontSize", "height", "hideTimeOverride"),
        *("mappings", "maxDataPoints", "maxPerRow", "minSpan", "repeat", "repeatDirection", "span"),
        *("timeFrom", "timeShift", "transparent"),
    }
)
_DEAD_TARGET_KEYS = frozenset(("hide", "interval", "intervalFactor", "metric", "query", "step", "target"))


def _place(rows: Sequence[Row]) -> Iterator[Json]:
    """Every row and panel with its id and its place; a panel that does not fit begins a new line."""
    number, top = 0, 0
    for row in rows:
        number += 1
        yield _row_panel(row.title, number, top)
        top += ROW_HEIGHT
        left = line_height = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left, line_height = top + line_height, 0, 0
            number += 1
            yield _panel(panel, number, x=left, y=top)
            left += panel.width
            line_height = max(line_height, panel.height)
        top += line_height


def _row_panel(title: str, number: int, top: int) -> Json:
    return {
        "collapsed": False,
        "gridPos": {"h": ROW_HEIGHT, "w": COLUMNS, "x": 0, "y": top},
        "id": number,
        "panels": [],
        "title": title,
        "type": "row",
    }


def _panel(panel: Panel, number: int, *, x: int, y: int) -> Json:
    raw = {key: value for key, value in _plain(panel.body).items() if key not in _DEAD_PANEL_KEYS}
    raw["id"] = number
    raw["gridPos"] = {"h": panel.height, "w": panel.width, "x": x, "y": y}
    raw["targets"] = [_target(target) for target in raw["targets"]]
    if raw["type"] == "table":
        # grafanalib nests the table's column options of an older release.
        raw["fieldConfig"]["defaults"]["custom"].pop("displayMode", None)
        raw["fieldConfig"]["defaults"]["custom"].pop("filterable", None)
    if raw["type"] != "table":
        raw.pop("transformations", None)
    cleaned: Json = _without_empty(raw, keep=("mappings", "overrides"))
    return cleaned


def _target(raw: Json) -> Json:
    kept = {key: value for key, value in raw.items() if key not in _DEAD_TARGET_KEYS}
    kept["editorMode"] = "code"
    kept["range"] = not kept["instant"]
    if not kept.get("legendFormat"):
        kept["legendFormat"] = "__auto"
    return kept


def _without_empty(value: Any, *, keep: Sequence[str] = ()) -> Any:
    """Nulls go; empty lists go too, where nothing stands for "none of it"."""
    if isinstance(value, dict):
        return {
            key: _without_empty(item, keep=keep)
            for key, item in value.items()
            if item is not None and (item != [] or key in keep)
        }
    if isinstance(value, list):
        return [_without_empty(item, keep=keep) for item in value if item is not None]
    return value


def _datasource_variable() -> Json:
    return {
        "current": {},
        "hide": 0,
        "includeAll": False,
        "label": "Data source",
        "multi": False,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
        "type": "datasource",
    }


def _variable(variable: Variable) -> Json:
    every: Json = {"includeAll": variable.every}
    if variable.every:
        every["allValue"] = ".*" if variable.matches_absent else ".+"
    return {
        **every,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if variable.every else {},
        "datasource": DATASOURCE,
        "definition": variable.query,
        "hide": 0,
        "label": variable.label,
        "multi": True,
        "name": variable.name,
        "options": [],
        "query": {"query": variable.query, "refId": variable.name},
        # 2: when the time range changes, so that nodes that come and go are there.
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
        "type": "query",
    }
