"""Clients of the fake Kubernetes API that are closed at the end of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collector.kubernetes.auth import load_credentials
from collector.kubernetes.client import KubernetesClient
from fleet.clock import Clock
from tests.fakes.kubernetes_api import FakeKubernetes


@contextmanager
def client_of(
    api: FakeKubernetes,
    folder: Path,
    *,
    clock: Clock | None = None,
    token: str | None = None,
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[KubernetesClient]:
    """A client over real HTTP; ``options`` are KubernetesClient's."""
    options.setdefault("max_qps", 1000.0)
    credentials = load_credentials(api.kubeconfig(folder, token=token, user=user, cluster=cluster))
    client = KubernetesClient(credentials, clock=clock or api.clock, **options)
    try:
        yield client
    finally:
        client.close()
