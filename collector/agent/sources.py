"""What the exporter reads on this node: the sources, how long each may take, and how each is asked.

Code that knows NVIDIA is loaded by the first read, in that read's thread: an agent without sources has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collector.agent.settings import AgentSettings
from fleet.clock import Clock
from fleet.errors import InvalidInputError
from fleet.observations import ProblemReason, Reading

DCGM = "dcgm"
NVML = "nvml"
NVIDIA_SMI = "nvidia-smi"
NIC = "nic"
#: Of two sources that give one signal of one GPU the first is believed.
PRECEDENCE = (DCGM, NVML, NVIDIA_SMI, NIC)
#: Those that list GPUs.
GPU_SOURCES = frozenset({DCGM, NVML, NVIDIA_SMI})

# Deadlines (s) at the usual interval of 15 s. dcgm-exporter answers from its cache, sysfs at once; the driver
# may take seconds to wake where persistence mode is off.
_DEADLINES = {DCGM: 5.0, NVML: 10.0, NVIDIA_SMI: 10.0, NIC: 5.0}
# A deadline is never more than this share of the interval.
_SHARE = 2 / 3
# What a reader gets beyond its deadline to come back by itself (s); its own word is better than "late".
_GRACE_SECONDS = 3.0

Stuck = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """``read`` may raise only by a defect; ``limit_seconds``: when it is left behind."""

    name: str
    read: Callable[[], Reading]
    limit_seconds: float


def open_sources(settings: AgentSettings, clock: Clock) -> tuple[Source, ...]:
    """The sources of ``settings``, in the order of precedence. Touches nothing yet.

    Raises InvalidInputError for an address that can never work.
    """
    makers = {DCGM: _dcgm, NVML: _nvml, NVIDIA_SMI: _nvidia_smi, NIC: _nic}
    sources = []
    for name in PRECEDENCE:
        if name in settings.sources:
            seconds = min(_DEADLINES[name], _SHARE * settings.source_interval_seconds)
            read = makers[name](settings, clock, seconds)
            sources.append(Source(name=name, read=read, limit_seconds=seconds + _GRACE_SECONDS))
    return tuple(sources)


def _dcgm(settings: AgentSettings, clock: Clock, seconds: float) -> Callable[[], Reading]:
    from collector.deadline_http import Fetcher  # noqa: PLC0415

    url = settings.dcgm_url
    try:
        Fetcher(url, headers={}, max_bytes=1)
    except InvalidInputError as error:
        raise InvalidInputError(f"agent.dcgm_url: {error}") from error

    def read() -> Reading:
        from collector.scrape import scrape_once  # noqa: PLC0415

        return scrape_once(url, node=settings.node, timeout_seconds=seconds, clock=clock)

    return read


def _nvml(settings: AgentSettings, clock: Clock, seconds: float) -> Callable[[], Reading]:
    suspicion = _Suspicion()

    def read() -> Reading:
        from collector.nvidia_smi.stuck import unkillable  # noqa: PLC0415
        from collector.nvml.live import read_live  # noqa: PLC0415

        stuck = suspicion.look(unkillable)
        return suspicion.judge(read_live(seconds, node=settings.node, now=clock.now(), stuck=stuck))

    return read


def _nvidia_smi(settings: AgentSettings, clock: Clock, seconds: float) -> Callable[[], Reading]:
    suspicion = _Suspicion()

    def read() -> Reading:
        from collector.nvidia_smi.live import read_live  # noqa: PLC0415
        from collector.nvidia_smi.stuck import unkillable  # noqa: PLC0415

        stuck = suspicion.look(unkillable)
        return suspicion.judge(read_live(seconds, node=settings.node, now=clock.now(), stuck=stuck))

    return read


def _nic(settings: AgentSettings, clock: Clock, seconds: float) -> Callable[[], Reading]:
    def read() -> Reading:
        from collector.nic.reader import read_live, read_tree  # noqa: PLC0415

        root, node, now = settings.nic_root, settings.node, clock.now()
        if not root.exists():
            return read_live(seconds, node=node, now=now, root=root)
        # Without the thread that read_live leaves behind at each time-out: the caller has one, and one only.
        return read_tree(root, node=node, now=now)

    return read


class _Suspicion:
    """Looks for a stuck call at the start and after a time-out only: that reads all of /proc."""

    def __init__(self) -> None:
        self._founded = True

    def look(self, unkillable: Stuck) -> Stuck:
        return unkillable if self._founded else _nothing

    def judge(self, reading: Reading) -> Reading:
        self._founded = any(problem.reason is ProblemReason.TIMEOUT for problem in reading.problems)
        return reading


def _nothing(_name: str) -> Sequence[int]:
    return ()
