"""One live look at Kubernetes for the command line: nodes and pods, or the problem that kept us from them."""

from __future__ import annotations

from pathlib import Path

from collector.kubernetes.auth import CredentialsError, load_credentials
from collector.kubernetes.client import KubernetesClient
from collector.kubernetes.cluster import SOURCE, device_allocations, read_cluster
from fleet.clock import Clock, SystemClock
from fleet.errors import BackendError, ForbiddenError
from fleet.observations import Problem, ProblemReason, Reading


def read_live(
    timeout_seconds: float, *, kubeconfig: Path | None = None, clock: Clock | None = None
) -> Reading:
    """Nodes and unfinished pods as the API server has them now, with the usual kubeconfig or service account.

    Never raises for what Kubernetes does: a problem says it.
    """
    clock = clock or SystemClock()
    try:
        client = KubernetesClient(load_credentials(kubeconfig), clock=clock, timeout_seconds=timeout_seconds)
    except CredentialsError as error:
        return _failed(ProblemReason.PERMISSION_DENIED, error)
    try:
        nodes, pods = client.list_nodes(), client.list_pods()
    except ForbiddenError as error:
        return _failed(ProblemReason.PERMISSION_DENIED, error)
    except BackendError as error:
        return _failed(ProblemReason.CONTROLLER_UNREACHABLE, error)
    finally:
        client.close()
    cluster = read_cluster(nodes, pods, now=clock.now())
    return Reading((*cluster.nodes, *cluster.jobs, *device_allocations(pods, ()), *cluster.problems))


def _failed(reason: ProblemReason, error: Exception) -> Reading:
    return Reading((Problem(source=SOURCE, reason=reason, message=str(error)),), ok=False)
