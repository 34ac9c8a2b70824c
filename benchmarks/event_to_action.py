"""From the kernel line to the scheduler call: through the running agent, the running service, real Slurm.

    python -m benchmarks.event_to_action [--rounds N] [--nodes N]

Settle time 0. For each sample an XID 79 line is appended to a node's kernel log; the clock stops when the
``scontrol`` on the controller's PATH (a wrapper that notes the time and goes on) is invoked for the drain.
That includes the fresh read of the node which precedes every write. After each sample the incident is
cancelled and the node given back, so every sample starts from an idle node.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.support.deployment import XID_79, Deployment
from tests.support.minislurm import MiniSlurm, missing_programs
from tests.support.processes import wait_until

WARM_UP = 5


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--nodes", type=int, default=4)
    given = parser.parse_args()
    missing = missing_programs()
    if missing:
        print(f"Slurm is not installed (missing: {', '.join(missing)}); run: sh tests/services/install.sh")
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="sb-bench-") as folder,
        MiniSlurm(nodes=given.nodes) as cluster,
        Deployment(cluster, Path(folder) / "d", **_bold(given.nodes)) as sickbay,
    ):
        version = cluster.run("scontrol", "--version").stdout.split()[-1]
        samples = [_sample(cluster, sickbay, node) for _ in range(given.rounds) for node in cluster.names]
    measured = samples[WARM_UP:]
    print(
        f"kernel line written -> scontrol invoked, settle 0, {given.nodes} nodes, one event at a time\n"
        f"{len(measured)} samples after {WARM_UP} of warm-up; Slurm {version}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, shared with the cluster itself\n"
    )
    print(f"{'milliseconds':34}{'p50':>8}{'p90':>8}{'p99':>8}{'max':>8}")
    values = sorted(measured)
    shown = (statistics.median(values), _quantile(values, 0.9), _quantile(values, 0.99), values[-1])
    print(f"{'line written -> drain invoked':34}" + "".join(f"{1000 * value:8.1f}" for value in shown))
    return 0


def _bold(nodes: int) -> dict[str, object]:
    pool = {
        "name": "gpu",
        "match": {"partition": "gpu"},
        "budget": {"max_in_flight": nodes, "max_unavailable_percent": 100},
        "rate": {"max_cordons": 100_000, "window_seconds": 600},
    }
    return {
        "settle_seconds": 0,
        "pools": [pool],
        "domains": {"burst": {"min_nodes": 100_000}},
        "repair": {"enabled": True, "ladder": []},
        "interval_seconds": 2,
    }


def _sample(cluster: MiniSlurm, sickbay: Deployment, node: str) -> float:
    """Seconds from the line to the drain."""
    before = len(sickbay.timed_calls())
    written = time.time()
    cluster.write_kernel_line(node, XID_79)

    def drained() -> float | None:
        mine = [
            (at, call)
            for at, call in sickbay.timed_calls()[before:]
            if node in call.replace("=", " ").split()
        ]
        return next((at for at, call in mine if "State=DRAIN" in call), None)

    at = wait_until(drained, timeout=30, what=f"{node} to be drained", interval=0.01)
    incident = wait_until(lambda: sickbay.incidents(node), timeout=10, what="the incident")[0]
    if incident["closed_at"] is None:
        sickbay.post(f"/api/v1/incidents/{incident['id']}/cancel", reason="next sample")
    else:
        cluster.run("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")
    wait_until(
        lambda: (
            sickbay.incidents(node)[0]["closed_at"] is not None
            and cluster.node_state(node) == "idle"
            and sickbay.get(f"/api/v1/nodes/{node}")["state"] == "idle"
        ),
        timeout=40,
        what=f"{node} to be idle again",
    )
    return at - written


def _quantile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    sys.exit(main())
