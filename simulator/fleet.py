"""The simulated hardware: nodes, racks, GPUs, boots, kernel logs. It knows no scheduler and no jobs."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.clock import Clock
from fleet.errors import NotFoundError
from simulator.kernel_log import LogShape, boot_text, bus_loss_text, render, xid_text

NODES_PER_RACK = 8
# PCI buses of an eight-GPU HGX board, as servers of that class number them.
_BUSES = ("1a", "3b", "4c", "5d", "9a", "ab", "ba", "db")


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """One GPU: its index at boot, its UUID, its normalised PCI address."""

    index: int
    uuid: str
    pci: str


@dataclass(slots=True, kw_only=True)
class SimulatedNode:
    """One machine. ``lost``: GPU indices off the bus now; ``broken``: those that a reboot won't bring back.

    ``down_until`` is the time a reboot ends, None while the node is up. ``silent_until``: its agent says
    nothing before then.
    """

    name: str
    rack: str
    gpus: tuple[SimulatedGpu, ...]
    boot_id: str
    boot_time: float
    machine_id: str
    lost: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)
    down_until: float | None = None
    silent_until: float = 0.0
    boots: int = 1
    log_sequence: int = 0
    log: list[bytes] = field(default_factory=list)

    @property
    def up(self) -> bool:
        return self.down_until is None

    @property
    def present_gpus(self) -> tuple[SimulatedGpu, ...]:
        """The GPUs that the driver sees now."""
        return tuple(gpu for gpu in self.gpus if gpu.index not in self.lost)


class SimulatedFleet:
    """``nodes`` machines ``n01``.. with ``gpus_per_node`` GPUs, eight a rack. Equal seeds, equal fleets.

    Methods take the node's name and raise NotFoundError for one that is not there. Thread-safe.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        nodes: int = 16,
        gpus_per_node: int = 8,
        seed: int = 1,
        log_shape: LogShape = LogShape.RSYSLOG,
    ) -> None:
        if not 1 <= gpus_per_node <= len(_BUSES):
            raise ValueError(f"gpus_per_node must be 1 to {len(_BUSES)}")
        self.clock = clock
        self.gpus_per_node = gpus_per_node
        self._random = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self._shape = log_shape
        self._lock = threading.RLock()
        width = max(2, len(str(nodes)))
        self._nodes = {
            name: self._make_node(name, rack=f"rack{number // NODES_PER_RACK + 1}")
            for number, name in enumerate(f"n{i:0{width}d}" for i in range(1, nodes + 1))
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    @property
    def racks(self) -> Mapping[str, tuple[str, ...]]:
        """Domain -> its nodes."""
        racks: dict[str, list[str]] = {}
        for node in self._nodes.values():
            racks.setdefault(node.rack, []).append(node.name)
        return {rack: tuple(names) for rack, names in racks.items()}

    def node(self, name: str) -> SimulatedNode:
        try:
            return self._nodes[name]
        except KeyError:
            raise NotFoundError(f"no node {name!r} in the simulated fleet") from None

    # -- faults of the hardware

    def log_xid(
        self,
        name: str,
        gpu_index: int,
        code: int,
        *,
        message: str | None = None,
        process: str = "python3",
        pid: int | None = None,
    ) -> None:
        """The driver reports an XID of one GPU in the node's kernel log."""
        with self._lock:
            node = self.node(name)
            text = xid_text(
                node.gpus[gpu_index].pci,
                code,
                pid=pid if pid is not None else self._random.randrange(2_000, 4_000_000),
                process=process,
                message=message,
            )
            self._write(node, text)

    def lose_gpu(self, name: str, gpu_index: int, *, back_after_reboot: bool = True) -> None:
        """The GPU falls off the bus: XID 79 in the log, and the driver no longer lists it.

        Without ``back_after_reboot`` it needs hands: no reboot brings it back.
        """
        with self._lock:
            node = self.node(name)
            self.log_xid(name, gpu_index, 79)
            self._write(node, bus_loss_text(node.gpus[gpu_index].pci))
            node.lost.add(gpu_index)
            if not back_after_reboot:
                node.broken.add(gpu_index)

    def replace_gpu(self, name: str, gpu_index: int) -> None:
        """Hands have put a lost GPU back (the same one, for simplicity)."""
        with self._lock:
            node = self.node(name)
            node.lost.discard(gpu_index)
            node.broken.discard(gpu_index)

    def silence_agent(self, name: str, seconds: float) -> None:
        """The node's agent pushes nothing for ``seconds``; node and jobs are fine."""
        with self._lock:
            self.node(name).silent_until = self.clock.now() + seconds

    def write_kernel_line(self, name: str, text: str) -> None:
        """Any kernel message."""
        with self._lock:
            self._write(self.node(name), text)

    # -- boots

    def reboot(self, name: str, seconds: float) -> None:
        """The node goes down now and is up again, as a new boot, after ``seconds``."""
        with self._lock:
            self.node(name).down_until = self.clock.now() + seconds

    def tick(self) -> None:
        """Finish the reboots that are due."""
        with self._lock:
            now = self.clock.now()
            for node in self._nodes.values():
                if node.down_until is not None and now >= node.down_until:
                    self._boot(node, at=node.down_until)

    # -- kernel logs

    def drain_kernel_lines(self, name: str) -> list[bytes]:
        """The lines since the last call, oldest first; each is read once, as by a tailing agent."""
        with self._lock:
            node = self.node(name)
            lines, node.log = node.log, []
            return lines

    # -- inside

    def _make_node(self, name: str, *, rack: str) -> SimulatedNode:
        gpus = tuple(
            SimulatedGpu(index, f"GPU-{self._uuid()}", f"0000:{_BUSES[index]}:00.0")
            for index in range(self.gpus_per_node)
        )
        # Up for hours to weeks, as nodes in service are.
        boot_time = self.clock.now() - self._random.uniform(6 * 3600, 40 * 86400)
        return SimulatedNode(
            name=name,
            rack=rack,
            gpus=gpus,
            boot_id=self._uuid(),
            boot_time=round(boot_time),
            machine_id=self._uuid().replace("-", ""),
        )

    def _boot(self, node: SimulatedNode, *, at: float) -> None:
        node.down_until = None
        node.boot_id = self._uuid()
        node.boot_time = at
        node.boots += 1
        node.lost = set(node.broken)
        node.log_sequence = 0
        if self._shape is LogShape.KMSG:
            node.log.clear()  # the ring buffer is a boot's own; rsyslog's file survives
        self._write(node, boot_text(), priority=5)

    def _write(self, node: SimulatedNode, text: str, *, priority: int = 3) -> None:
        if not node.up:
            return  # a machine that is off logs nothing
        now = self.clock.now()
        node.log.append(
            render(
                text,
                shape=self._shape,
                node=node.name,
                at=now,
                uptime=now - node.boot_time,
                sequence=node.log_sequence,
                priority=priority,
            )
        )
        node.log_sequence += 1

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
