"""The ``when`` of a rule file: YAML nodes to a MetricCondition, every complaint with its line.

    when:
      share: {signal: gpu_clock_event_reasons, mask: 0x40, above: 0.6, window_seconds: 600, min_seconds: 300}
      while: {signals: [gpu_sm_active_ratio, gpu_utilization_ratio], op: ">", value: 0.1}
      clear: {seconds: 600, level: 0.1}

Exactly one of ``threshold``, ``share``, ``increase``, ``absence``; ``while``, ``unless`` and ``clear``
are optional.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import yaml

from collector.signals import SignalKind, load_signals
from rules.metrics.conditions import (
    Absence,
    Clearing,
    Guard,
    Increase,
    MetricCondition,
    Op,
    Share,
    Test,
    Threshold,
)
from rules.reader import Reader

MAX_WINDOW_SECONDS = 6 * 3600.0
"""Windows are kept in memory for the whole fleet; longer trends belong to Prometheus."""
_MAX_CLEAR_SECONDS = 31 * 86400.0
_ANY = 1e18

Fields = Mapping[str, yaml.Node]


def parse_condition(reader: Reader, node: yaml.Node) -> MetricCondition | None:
    """The condition of one rule, or None after a complaint."""
    before = len(reader.problems)
    fields = reader.mapping(node, "when", required=(), optional=(*_TESTS, "while", "unless", "clear"))
    kinds = [kind for kind in _TESTS if kind in fields]
    if len(kinds) != 1:
        reader.complain(node, f"when must hold exactly one of {', '.join(_TESTS)}")
        return None
    test = _TESTS[kinds[0]](reader, fields[kinds[0]])
    condition = None
    if test is not None:
        condition = MetricCondition(
            test=test,
            only_while=_guard(reader, fields["while"], "while") if "while" in fields else None,
            unless=_guard(reader, fields["unless"], "unless") if "unless" in fields else None,
            clear=_clearing(reader, fields["clear"]) if "clear" in fields else None,
        )
        _contradictions(reader, node, condition)
    return condition if len(reader.problems) == before else None


def _threshold(reader: Reader, node: yaml.Node) -> Test | None:
    fields = _fields(reader, node, "threshold", ("signal", "op", "value", "for_seconds"))
    if fields is None:
        return None
    op = reader.enum(fields["op"], "op", Op, Op.GT)
    value = fields["value"]
    listed = reader.sequence(value, "value") if isinstance(value, yaml.SequenceNode) else [value]
    if len(listed) > 1 and op is not Op.EQ:
        reader.complain(value, "a list of values needs op: '=='")
    return Threshold(
        signal=_signal(reader, fields["signal"]),
        op=op,
        values=tuple(reader.number(item, "value", -_ANY, _ANY) for item in listed),
        for_seconds=reader.number(fields["for_seconds"], "for_seconds", 0, MAX_WINDOW_SECONDS),
    )


def _share(reader: Reader, node: yaml.Node) -> Test | None:
    keys = ("signal", "mask", "above", "window_seconds", "min_seconds")
    fields = _fields(reader, node, "share", keys)
    if fields is None:
        return None
    share = Share(
        signal=_signal(reader, fields["signal"], SignalKind.BITMASK),
        mask=reader.mask(fields["mask"], "mask"),
        above=reader.number(fields["above"], "above", 0, 0.999),
        window_seconds=reader.number(fields["window_seconds"], "window_seconds", 1, MAX_WINDOW_SECONDS),
        min_seconds=reader.number(fields["min_seconds"], "min_seconds", 1, MAX_WINDOW_SECONDS),
    )
    if share.min_seconds > share.window_seconds:
        reader.complain(fields["min_seconds"], "min_seconds is longer than window_seconds: it never judges")
    return share


def _increase(reader: Reader, node: yaml.Node) -> Test | None:
    fields = _fields(reader, node, "increase", ("signal", "above", "window_seconds"))
    if fields is None:
        return None
    return Increase(
        signal=_signal(reader, fields["signal"], SignalKind.COUNTER),
        above=reader.number(fields["above"], "above", 0, _ANY),
        window_seconds=reader.number(fields["window_seconds"], "window_seconds", 1, MAX_WINDOW_SECONDS),
    )


def _absence(reader: Reader, node: yaml.Node) -> Test | None:
    fields = _fields(reader, node, "absence", ("for_seconds", "min_siblings"))
    if fields is None:
        return None
    return Absence(
        for_seconds=reader.number(fields["for_seconds"], "for_seconds", 1, MAX_WINDOW_SECONDS),
        min_siblings=reader.integer(fields["min_siblings"], "min_siblings", 1, 64),
    )


_TESTS: Mapping[str, Callable[[Reader, yaml.Node], Test | None]] = {
    "threshold": _threshold,
    "share": _share,
    "increase": _increase,
    "absence": _absence,
}


def _guard(reader: Reader, node: yaml.Node, where: str) -> Guard | None:
    fields = _fields(reader, node, where, ("signals", "op", "value"))
    if fields is None:
        return None
    return Guard(
        signals=tuple(_signal(reader, item) for item in reader.sequence(fields["signals"], "signals")),
        op=reader.enum(fields["op"], "op", Op, Op.GT),
        value=reader.number(fields["value"], "value", -_ANY, _ANY),
    )


def _clearing(reader: Reader, node: yaml.Node) -> Clearing | None:
    fields = reader.mapping(node, "clear", required=("seconds",), optional=("level",))
    if "seconds" not in fields:
        return None
    return Clearing(
        seconds=reader.number(fields["seconds"], "seconds", 0, _MAX_CLEAR_SECONDS),
        level=reader.number(fields["level"], "level", -_ANY, _ANY) if "level" in fields else None,
    )


def _contradictions(reader: Reader, node: yaml.Node, condition: MetricCondition) -> None:
    test, level = condition.test, condition.clear.level if condition.clear is not None else None
    if isinstance(test, Absence) and condition.guards:
        reader.complain(node, "absence takes no while and no unless: a GPU that is gone reports neither")
    if level is None:
        return
    if isinstance(test, Threshold):
        rises = test.op.rises
        if rises is None:
            reader.complain(node, f"clear.level has no meaning with op {test.op}; leave it out")
        elif level > test.values[0] if rises else level < test.values[0]:
            reader.complain(node, "clear.level is on the bad side of the threshold")
    elif isinstance(test, Share | Increase) and level > test.above:
        reader.complain(node, "clear.level is above the rule's own threshold")
    elif isinstance(test, Absence):
        reader.complain(node, "clear.level has no meaning for absence; leave it out")


def _fields(reader: Reader, node: yaml.Node, what: str, keys: tuple[str, ...]) -> Fields | None:
    fields = reader.mapping(node, what, required=keys)
    return fields if len(fields) == len(keys) else None


def _signal(reader: Reader, node: yaml.Node, kind: SignalKind | None = None) -> str:
    name = reader.text(node, "signal")
    signal = load_signals().get(name)
    if signal is None:
        if name:
            reader.complain(node, f"no signal is called {name[:80]!r}; names are ours, without a prefix")
        return ""
    if kind is not None and signal.kind is not kind:
        reader.complain(node, f"{name} is a {signal.kind}, and a {kind} is needed here")
    return name
