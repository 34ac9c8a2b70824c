"""Create, patch and delete, as the generic registry and the strategies of nodes, pods and budgets do them.

Source: kubernetes 1.36 pkg/registry/core/{node,pod}/strategy.go, pkg/registry/policy/poddisruptionbudget,
and the admission plugins that are on by default (TaintNodesByCondition, DefaultTolerationSeconds).
"""

from __future__ import annotations

import copy
import random
from typing import Any

from simulator.kubernetes_api.errors import Json, Refusal, bad_request, precondition_failed
from simulator.kubernetes_api.patches import apply
from simulator.kubernetes_api.store import KINDS, Store

FINISHED = ("Succeeded", "Failed")
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_TOP = {"apiVersion", "kind", "metadata", "spec", "status"}
_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # the letters of apimachinery's generated names
#: Resources whose main endpoint ignores status, because it is a subresource.
WITH_STATUS = ("nodes", "pods", "poddisruptionbudgets", "namespaces", "daemonsets")


def create(store: Store, resource: str, body: Any, namespace: str, *, manager: str, dry: bool) -> Json:
    """The object as it was stored; AlreadyExists, Invalid or BadRequest as a Refusal."""
    api_version, kind = KINDS[resource]
    if not isinstance(body, dict) or (body.get("apiVersion"), body.get("kind")) != (api_version, kind):
        raise bad_request(f"the object provided is no {kind} of {api_version}")
    wanted = copy.deepcopy(body)
    meta = wanted.setdefault("metadata", {})
    if meta.get("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if namespace:
        meta["namespace"] = namespace
        if resource != "namespaces" and store.has_namespaces and store.find("namespaces", namespace) is None:
            raise Refusal(404, "NotFound", f'namespaces "{namespace}" not found')
    if not meta.get("name"):
        if not meta.get("generateName"):
            raise Refusal(422, "Invalid", f'{kind} "" is invalid: metadata.name: Required value')
        meta["name"] = meta["generateName"] + "".join(random.choices(_SUFFIX, k=5))  # noqa: S311
    for server_side in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        meta.pop(server_side, None)
    _default(resource, wanted)
    return store.create(resource, wanted, manager=manager, dry=dry)


def _default(resource: str, wanted: Json) -> None:
    """Strategies and admission. A node keeps the status it comes with (kubelets register so)."""
    spec = wanted.setdefault("spec", {})
    if resource == "nodes":
        taints = spec.setdefault("taints", [])
        if all(taint.get("key") != NOT_READY["key"] for taint in taints):
            taints.append(dict(NOT_READY))
    elif resource == "pods":
        wanted["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        spec.setdefault("terminationGracePeriodSeconds", 30)
        spec.setdefault("restartPolicy", "Always")
        tolerations = spec.setdefault("tolerations", [])
        for key in _TOLERATED:
            if all(one.get("key") != key for one in tolerations):
                tolerations.append(
                    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                )
    elif resource == "poddisruptionbudgets":
        wanted["status"] = {}
    elif resource == "namespaces":
        wanted["status"] = {"phase": "Active"}


def patch(
    store: Store, current: Json, kind: str, sent: Any, *, subresource: str | None, manager: str, dry: bool
) -> Json:
    """Status is a subresource: the main endpoint keeps it, and ``status`` changes nothing else."""
    if isinstance(sent, dict) and sent.keys() - _TOP - {"$patch", "$retainKeys"}:
        raise bad_request(f'strict decoding error: unknown field "{sorted(sent.keys() - _TOP)[0]}"')
    patched = apply(kind, copy.deepcopy(current), sent)
    if patched.get("metadata", {}).get("name") != current["metadata"]["name"]:
        raise bad_request("the name of the object does not match the name on the URL")
    meta = patched["metadata"]
    if subresource == "status":
        patched = {**current, "status": patched.get("status") or {}}
        kept = ("resourceVersion", "uid")
        patched["metadata"] = {**current["metadata"], **{key: meta[key] for key in kept if key in meta}}
    else:
        patched = {**patched, "metadata": meta, "status": current.get("status")}
    meta = patched["metadata"]
    meta.setdefault("resourceVersion", current["metadata"]["resourceVersion"])
    for empty in ("annotations", "labels", "finalizers"):
        if not meta.get(empty, True):
            del meta[empty]
    spec = patched.get("spec", {})
    if spec.get("unschedulable") is False:
        del spec["unschedulable"]  # omitempty
    if spec.get("taints") == []:
        del spec["taints"]
    return store.update(current, patched, manager=manager, dry=dry)


def delete(store: Store, current: Json, options: Json, *, dry: bool) -> Json:
    """A pod on a node gets its grace and stays until its kubelet confirms; all else goes at once.

    Finalizers keep any object. Pods are answered with themselves, other kinds with a Status.
    """
    check_preconditions(current, options.get("preconditions") or {})
    meta, resource = current["metadata"], _resource_of(current)
    if not dry:
        remove(store, current, options.get("gracePeriodSeconds"))
    if resource == "pods":
        return store.find(resource, meta["name"], meta.get("namespace", "")) or current
    details = {"name": meta["name"], "kind": resource, "uid": meta["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def remove(store: Store, current: Json, grace: int | None) -> None:
    """pkg/registry/core/pod/strategy.go, CheckGracefulDelete: no node or finished means no grace."""
    waits = 0
    if current["kind"] == "Pod":
        own = current["spec"].get("terminationGracePeriodSeconds", 30)
        bound = current["spec"].get("nodeName") and current["status"].get("phase") not in FINISHED
        waits = (own if grace is None else grace) if bound else 0
    if waits or current["metadata"].get("finalizers"):
        store.mark_deleted(current, grace=waits)
    else:
        store.remove(current)


def check_preconditions(found: Json, wanted: Json) -> None:
    for field, value in wanted.items():
        if found["metadata"].get(field) != value:
            raise precondition_failed(found, field, str(value))


def _resource_of(found: Json) -> str:
    return next(resource for resource, (_, kind) in KINDS.items() if kind == found["kind"])
