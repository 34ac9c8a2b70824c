"""What a client asks before it does anything: versions and resources (kubectl needs it, ours does not)."""

from __future__ import annotations

from simulator.kubernetes_api.errors import Json


def _resource(name: str, kind: str, verbs: str, *, namespaced: bool) -> Json:
    return {
        "name": name,
        "singularName": kind.lower() if "/" not in name else "",
        "namespaced": namespaced,
        "kind": kind,
        "verbs": verbs.split(),
    }


def _resources(group_version: str, *resources: Json) -> Json:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": list(resources),
    }


def _group(name: str) -> Json:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


_EVICTION = {
    **_resource("pods/eviction", "Eviction", "create", namespaced=True),
    "group": "policy",
    "version": "v1",
}
DISCOVERY: dict[str, Json] = {
    "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group("apps"), _group("policy"), _group("authorization.k8s.io")],
    },
    "/api/v1": _resources(
        "v1",
        _resource("nodes", "Node", "get list patch", namespaced=False),
        _resource("namespaces", "Namespace", "get list", namespaced=False),
        _resource("pods", "Pod", "get list", namespaced=True),
        _EVICTION,
    ),
    "/apis/apps/v1": _resources("apps/v1", _resource("daemonsets", "DaemonSet", "get list", namespaced=True)),
    "/apis/policy/v1": _resources(
        "policy/v1", _resource("poddisruptionbudgets", "PodDisruptionBudget", "get list", namespaced=True)
    ),
    "/apis/authorization.k8s.io/v1": _resources(
        "authorization.k8s.io/v1",
        _resource("selfsubjectaccessreviews", "SelfSubjectAccessReview", "create", namespaced=False),
    ),
}
