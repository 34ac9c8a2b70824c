"""Direct scrape of a fleet: ``python -m benchmarks.direct_scrape [NODES]`` (default 300).

A process of its own serves one body per node, of 8 GPUs and 39 metric families as dcgm-exporter 4 prints
them; a scraper reads all of them, pass after pass. Printed: the wall clock of a pass, the CPU time this side
spends on it (fetching and reading; the exporters' own is not in it), and the share of one core at 15 s.
"""

from __future__ import annotations

import gzip
import multiprocessing
import resource
import socket
import statistics
import sys
import threading
import time

from collector.scrape import Scraper, ScrapeTarget
from fleet.clock import SystemClock
from fleet.observations import Sample

PASSES = 8
INTERVAL_SECONDS = 15.0
_DEVICE = (
    "GPU_TEMP MEMORY_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION SM_CLOCK MEM_CLOCK GPU_UTIL "
    "MEM_COPY_UTIL ENC_UTIL DEC_UTIL FB_USED FB_FREE FB_RESERVED XID_ERRORS PCIE_REPLAY_COUNTER "
    "CLOCKS_EVENT_REASONS ROW_REMAP_FAILURE ROW_REMAP_PENDING CORRECTABLE_REMAPPED_ROWS "
    "UNCORRECTABLE_REMAPPED_ROWS ECC_SBE_VOL_TOTAL ECC_DBE_VOL_TOTAL ECC_SBE_AGG_TOTAL "
    "ECC_DBE_AGG_TOTAL NVLINK_BANDWIDTH_TOTAL POWER_VIOLATION THERMAL_VIOLATION PCIE_LINK_GEN "
    "PCIE_LINK_WIDTH VGPU_LICENSE_STATUS"
)
_PROFILING = (
    "GR_ENGINE_ACTIVE SM_ACTIVE SM_OCCUPANCY PIPE_TENSOR_ACTIVE DRAM_ACTIVE PCIE_TX_BYTES PCIE_RX_BYTES "
    "NVLINK_TX_BYTES NVLINK_RX_BYTES"
)


def body(node: int) -> bytes:
    """What one node's exporter says."""
    lines = []
    for family in [f"DEV_{name}" for name in _DEVICE.split()] + [
        f"PROF_{name}" for name in _PROFILING.split()
    ]:
        lines.append(f"# HELP DCGM_FI_{family} What it is.\n# TYPE DCGM_FI_{family} gauge")
        value = "0.512345" if family.startswith("PROF") else "1"
        lines.extend(
            f'DCGM_FI_{family}{{gpu="{gpu}",UUID="GPU-{node:08d}-a81e-5483-a111-{gpu:012d}",'
            f'pci_bus_id="00000000:{gpu + 16:02X}:00.0",device="nvidia{gpu}",'
            f'modelName="NVIDIA H100 80GB HBM3",'
            f'Hostname="n{node:03d}",DCGM_FI_DRIVER_VERSION="580.65.06",hpc_job="{4700 + node}"}} {value}'
            for gpu in range(8)
        )
    return ("\n".join(lines) + "\n").encode()


def serve(nodes: int, ports: multiprocessing.Queue[int]) -> None:
    """Answer ``/metrics/<node>`` on kept connections, in threads, from memory."""
    answers = []
    for node in range(nodes):
        packed = gzip.compress(body(node), 1)
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n"
        answers.append(f"{head}Content-Length: {len(packed)}\r\n\r\n".encode() + packed)

    def talk(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader:
            while request := reader.readline():
                while reader.readline().strip():
                    pass
                connection.sendall(answers[int(request.split()[1].rsplit(b"/", 1)[1])])

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        ports.put(listener.getsockname()[1])
        while True:
            threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    ports: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(nodes, ports), daemon=True)
    server.start()
    port = ports.get()
    targets = [
        ScrapeTarget(f"n{node:03d}", f"http://127.0.0.1:{port}/metrics/{node}") for node in range(nodes)
    ]
    scraper = Scraper(targets, timeout_seconds=10, pass_seconds=60, clock=SystemClock())
    walls, cpus = [], []
    for _ in range(PASSES):
        wall, cpu = time.monotonic(), time.process_time()
        results = scraper.scrape_all()
        walls.append(time.monotonic() - wall)
        cpus.append(time.process_time() - cpu)
        assert all(result.ok for result in results), [r.error for r in results if not r.ok][:3]
    samples = sum(isinstance(record, Sample) for r in results for record in r.reading.records)
    cpu = statistics.median(cpus[1:])
    print(f"{nodes} nodes, {len(body(0))} bytes each, {samples} samples a pass, {PASSES} passes")
    print(f"wall clock of a pass: first {walls[0]:.2f} s, then median {statistics.median(walls[1:]):.2f} s")
    share = f"{cpu / INTERVAL_SECONDS:.1%} of one core at {INTERVAL_SECONDS:g} s"
    print(f"CPU of a pass: median {cpu:.2f} s = {share}")
    print(f"resident at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    scraper.close()
    server.terminate()


if __name__ == "__main__":
    main()
