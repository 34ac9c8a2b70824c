"""Recording rules that give dcgm-exporter's metrics our names, base units and labels.

Generated from the same table that the scrape reader uses (``collector.dcgm.fields``): a metric means the
same on both ways. What comes out has the labels ``cluster``, ``node``, ``gpu`` (index), ``uuid``, for an
instance of a MIG GPU ``gi``, for a link, an XID or a clock event that one too; nothing of the exporter's pod
or driver, so that a restart of the exporter or a new driver is no new series.

Not as in the reader: a percentage that is a blank code times 100 is caught by its bounds only, and a fraction
where only whole numbers make sense is not refused (PromQL has no exact test that two names of one metric
survive).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from alerts.model import Group, Recording
from collector.dcgm.fields import FREE_MEMORY, RESERVED_MEMORY, Field, Zero, load_fields
from collector.signals import Signal, SignalKind, SignalTarget, load_signals

INTERVAL_SECONDS = 15.0
GPU_LABELS = ("cluster", "node", "gpu", "uuid")
#: 1 for every GPU that dcgm-exporter names in a line of its own, whatever the line's value.
PRINTED = "gpu:sickbay_dcgm_printed:group"
# Families of which every set of counters has at least one; reading them all is cheap.
_PRESENCE = (
    *("gpu_temperature_celsius", "gpu_power_watts", "gpu_sm_clock_hertz", "gpu_utilization_ratio"),
    *("gpu_memory_used_bytes", "gpu_clock_event_reasons", "gpu_xid_last_code"),
)
# dcgm_structs.h: blank, not found, not supported, not permissioned; as int32, fp64 and int64 (as a float).
_BLANKS = (
    *(2147483632 + kind for kind in range(4)),
    *(140737488355328 + kind for kind in range(4)),
)
_INT64_BLANK = 9.2233720368547e18
# What makes one series of a signal differ from another: dcgm-exporter's label, ours, the part that is kept.
_SERIES_LABELS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "gpu_nvlink_crc_flit_errors_total": (("nvlink", "nvlink", "(.*)"),),
    "gpu_nvlink_crc_data_errors_total": (("nvlink", "nvlink", "(.*)"),),
    "gpu_nvlink_replay_errors_total": (("nvlink", "nvlink", "(.*)"),),
    "gpu_nvlink_recovery_errors_total": (("nvlink", "nvlink", "(.*)"),),
    "gpu_xid_window_count": (("xid", "xid", "(.*)"), ("window_size_in_ms", "window_seconds", "(.+)000")),
    "gpu_xid_errors_total": (("xid", "xid", "(.*)"),),
    "gpu_clock_event_window_count": (
        ("clock_event", "clock_event", "(.*)"),
        ("window_size_in_ms", "window_seconds", "(.+)000"),
    ),
    "gpu_clock_events_total": (("clock_event", "clock_event", "(.*)"),),
}
_TOTAL_MEMORY, _USED_MEMORY = "gpu_memory_total_bytes", "gpu_memory_used_bytes"


def group() -> Group:
    """All signals of GPUs that dcgm-exporter can give."""
    fields = load_fields()
    rules = tuple(
        Recording(record=signal.metric_name, expr=expression(signal, fields))
        for signal in load_signals().values()
        if signal.target is SignalTarget.GPU and any(_by_rank(signal.name, fields).values())
    )
    return Group(
        name="sickbay-normalise-dcgm",
        interval_seconds=INTERVAL_SECONDS,
        rules=(*rules, Recording(record=PRINTED, expr=_printed(fields))),
    )


def expression(signal: Signal, fields: Mapping[str, Field]) -> str:
    """PromQL for one signal; where several metrics carry it, the preferred one that is there."""
    parts = [_one(names, fields[names[0]], signal) for _, names in _ranked(signal.name, fields)]
    if signal.name == _TOTAL_MEMORY:
        # Where the exporter does not say the total: only if all three parts are there.
        pieces = (_USED_MEMORY, FREE_MEMORY, RESERVED_MEMORY)
        names = [(name, names) for name in pieces for _, names in _ranked(name, fields)]
        parts.append("\n+ ".join(_one(found, fields[found[0]], signal) for _, found in names))
    return "\nor\n".join(parts)


def per_instance(signal: str) -> bool:
    """True if a GPU instance (MIG) has its own series of the signal, beside or in place of the board's."""
    field = load_fields().get(f"sickbay_{signal}")
    return field is not None and field.per_instance


def _ranked(signal: str, fields: Mapping[str, Field]) -> list[tuple[int, list[str]]]:
    return sorted(_by_rank(signal, fields).items())


def _by_rank(signal: str, fields: Mapping[str, Field]) -> dict[int, list[str]]:
    ranks: dict[int, list[str]] = {}
    for name, spec in fields.items():
        if spec.signal == signal and name != f"sickbay_{signal}" and not spec.info:
            ranks.setdefault(spec.rank, []).append(name)
    return ranks


def _printed(fields: Mapping[str, Field]) -> str:
    names = [name for signal in _PRESENCE for _, found in _ranked(signal, fields) for name in found]
    vector = _identified(_selector(names), per_instance=False)
    return f"group by ({', '.join(GPU_LABELS)}) (\n{_indent(vector)}\n)"


def _one(names: Sequence[str], spec: Field, signal: Signal) -> str:
    series = _SERIES_LABELS.get(signal.name, ())
    labels = [*GPU_LABELS, *(("gi",) if spec.per_instance else ()), *(ours for _, ours, _ in series)]
    # OpenMetrics and OpenTelemetry add _total to counters that lack it.
    known = [*names, *(f"{name}_total" for name in names if signal.kind is SignalKind.COUNTER)]
    vector = _identified(f"({_plausible(known, spec)})", per_instance=spec.per_instance)
    for theirs, ours, kept in series:
        if ours != theirs:
            vector = f'label_replace({vector}, "{ours}", "$1", "{theirs}", "{kept}")'
    text = f"max by ({', '.join(labels)}) (\n{_indent(vector)}\n)"
    text = f"{text}{_scaled(spec.scale)}"
    return f"clamp_max({text}, 1)" if spec.boolean else text


def _selector(names: Sequence[str], matcher: str = "") -> str:
    if len(names) == 1:
        return f"{names[0]}{{{matcher}}}" if matcher else names[0]
    listed = f'__name__=~"{"|".join(names)}"'
    return f"{{{listed}, {matcher}}}" if matcher else f"{{{listed}}}"


def _scaled(scale: float) -> str:
    """Multiplied or divided, whichever is exact: 1e9 is a float, 1e-9 is not."""
    if scale == 1.0:
        return ""
    return f" * {scale:.10g}" if scale > 1.0 else f" / {1 / scale:.10g}"


def _plausible(names: Sequence[str], spec: Field) -> str:
    """The samples that are a number, in the exporter's unit: blank codes and nonsense are absent."""
    lowest = "> 0" if spec.zero is not Zero.VALUE else f">= {spec.low / spec.scale:.10g}"
    board = f"{_selector(names)} {' '.join(_upper(spec.high / spec.scale))}"
    if spec.instance_high == spec.high or not spec.per_instance:
        return f"{board} {lowest}"
    # Shares of a GPU instance overshoot: an artefact, no fault (DCGM issue 152).
    instance = _selector(names, 'GPU_I_ID!=""')
    return f"({board} or {instance} {' '.join(_upper(spec.instance_high / spec.scale))}) {lowest}"


def _upper(highest: float) -> Iterator[str]:
    """Comparisons that filter, one after another."""
    yield from (f"!= {blank}" for blank in _BLANKS if blank <= highest)
    yield f"< {_INT64_BLANK:.15g}" if highest >= _INT64_BLANK else f"<= {highest:.15g}"


def _identified(vector: str, *, per_instance: bool) -> str:
    """Our labels. ``node``: the scrape's own word first, then the exporter's, by its old and new name."""
    steps: list[tuple[str, tuple[str, ...]]] = [
        ("node", ("node", "Hostname", "hostname")),
        ("uuid", ("UUID", "uuid", "gpu_uuid")),
    ]
    if per_instance:
        steps.append(("gi", ("GPU_I_ID",)))
    for label, sources in steps:
        listed = ", ".join(f'"{source}"' for source in sources)
        vector = (
            f'label_replace(label_join({vector}, "{label}", ";", {listed}),'
            f' "{label}", "$1", "{label}", ";*([^;]*).*")'
        )
    return vector


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
