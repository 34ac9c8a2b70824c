"""One live look at Kubernetes for the command line: nodes and pods, or the problem that kept us from them."""

from __future__ import annotations

from pathlib import Path

from collector.kubernetes.auth import CredentialsError, load_credentials
from collector.kubernetes.claims import Claims
from collector.kubernetes.client import KubernetesClient
from collector.kubernetes.cluster import SOURCE, read_cluster, read_devices
from collector.kubernetes.objects import PodObject
from fleet.clock import Clock, SystemClock
from fleet.errors import BackendError, ForbiddenError
from fleet.observations import Problem, ProblemReason, Reading


def read_live(
    timeout_seconds: float, *, kubeconfig: Path | None = None, clock: Clock | None = None
) -> Reading:
    """Nodes, unfinished pods and their claims as the API server has them now.

    Credentials: the usual kubeconfig or service account.

    Never raises for what Kubernetes does: a problem says it.
    """
    clock = clock or SystemClock()
    try:
        client = KubernetesClient(load_credentials(kubeconfig), clock=clock, timeout_seconds=timeout_seconds)
    except CredentialsError as error:
        return _failed(ProblemReason.PERMISSION_DENIED, error)
    try:
        nodes, pods = client.list_nodes(), client.list_pods()
        claims, problems = _read_claims(client, pods)
    except ForbiddenError as error:
        return _failed(ProblemReason.PERMISSION_DENIED, error)
    except BackendError as error:
        return _failed(ProblemReason.CONTROLLER_UNREACHABLE, error)
    finally:
        client.close()
    cluster = read_cluster(nodes, pods, now=clock.now(), claims=claims)
    devices = read_devices(pods, claims)
    return Reading(
        (
            *cluster.nodes,
            *cluster.jobs,
            *devices.allocations,
            *cluster.problems,
            *devices.problems,
            *problems,
        )
    )


def _read_claims(client: KubernetesClient, pods: list[PodObject]) -> tuple[Claims, tuple[Problem, ...]]:
    """Asked for only where a pod has claims; refused, what they hold stays unknown."""
    if not any(pod.spec and pod.spec.resource_claims for pod in pods):
        return Claims(), ()
    try:
        return Claims(client.list_claims()), ()
    except BackendError as error:
        message = f"the ResourceClaims of pods cannot be read, so their GPUs are unknown: {error}"
        return Claims(), (Problem(source=SOURCE, reason=ProblemReason.PARTIAL, message=message),)


def _failed(reason: ProblemReason, error: Exception) -> Reading:
    return Reading((Problem(source=SOURCE, reason=reason, message=str(error)),), ok=False)
