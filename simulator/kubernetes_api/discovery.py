"""What a client asks before it does anything: versions and resources (kubectl needs it, ours does not)."""

from __future__ import annotations

from simulator.kubernetes_api.errors import Json


def _resource(name: str, kind: str, verbs: str, *, namespaced: bool, short: str = "") -> Json:
    return {
        **({"shortNames": [short]} if short else {}),
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


_ALL = "create delete get list patch"
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
        _resource("nodes", "Node", _ALL, namespaced=False, short="no"),
        _resource("nodes/status", "Node", "get patch", namespaced=False),
        _resource("namespaces", "Namespace", _ALL, namespaced=False, short="ns"),
        _resource("pods", "Pod", _ALL, namespaced=True, short="po"),
        _resource("pods/status", "Pod", "get patch", namespaced=True),
        _EVICTION,
    ),
    "/apis/apps/v1": _resources(
        "apps/v1", _resource("daemonsets", "DaemonSet", _ALL, namespaced=True, short="ds")
    ),
    "/apis/policy/v1": _resources(
        "policy/v1",
        _resource("poddisruptionbudgets", "PodDisruptionBudget", _ALL, namespaced=True, short="pdb"),
        _resource("poddisruptionbudgets/status", "PodDisruptionBudget", "get patch", namespaced=True),
    ),
    "/apis/authorization.k8s.io/v1": _resources(
        "authorization.k8s.io/v1",
        _resource("selfsubjectaccessreviews", "SelfSubjectAccessReview", "create", namespaced=False),
    ),
}
