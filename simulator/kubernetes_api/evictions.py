"""POST pods/NAME/eviction, in the order of kubernetes 1.36 pkg/registry/core/pod/storage/eviction.go."""

from __future__ import annotations

from typing import Any

from simulator.kubernetes_api.errors import Json, Refusal, bad_request
from simulator.kubernetes_api.selectors import matches_selector
from simulator.kubernetes_api.store import Store, stamp
from simulator.kubernetes_api.writes import check_preconditions, remove

_EVICTION = {"apiVersion", "kind", "metadata", "deleteOptions"}
_OPTIONS = {
    "apiVersion",
    "kind",
    "preconditions",
    "gracePeriodSeconds",
    "dryRun",
    "propagationPolicy",
    "orphanDependents",
}
_MAX_DISRUPTED = 2000
TWO_BUDGETS = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
)


def evict(store: Store, namespace: str, name: str, body: Json, *, dry: bool = False) -> Json:
    """The Status of success, or a Refusal. ``dry``: asked for in the query."""
    options = _checked(body, namespace, name)
    asked = options.get("dryRun") == ["All"]
    if dry and options.get("dryRun") and not asked:
        raise bad_request("Non-dry-run options in DeleteOptions do not match the dryRun of the request")
    dry = dry or asked
    pod = store.get("pods", name, namespace)
    if not _is_free(pod):
        budgets = [
            budget
            for budget in store.all("poddisruptionbudgets", namespace)
            if matches_selector(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})
        ]
        if len(budgets) > 1:
            raise Refusal(500, None, TWO_BUDGETS)
        if budgets:
            _spend(store, budgets[0], pod, dry=dry)
    check_preconditions(pod, options.get("preconditions") or {})
    if not dry:
        _delete(store, pod, options.get("gracePeriodSeconds"))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _checked(body: Json, namespace: str, name: str) -> Json:
    if (body.get("apiVersion"), body.get("kind")) != ("policy/v1", "Eviction"):
        raise bad_request(
            f"no kind {body.get('kind')!r} is registered for version {body.get('apiVersion')!r}"
        )
    options: Any = body.get("deleteOptions") or {}
    unknown = sorted((body.keys() - _EVICTION) | (options.keys() - _OPTIONS))
    unknown += sorted((options.get("preconditions") or {}).keys() - {"uid", "resourceVersion"})
    if unknown:
        raise bad_request(f'strict decoding error: unknown field "{unknown[0]}"')
    meta = body.get("metadata") or {}
    if meta.get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    if meta.get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the object does not match the namespace of the request")
    if (options.get("gracePeriodSeconds") or 0) < 0:
        raise bad_request("gracePeriodSeconds: must be greater than or equal to 0")
    return dict(options)


def _is_free(pod: Json) -> bool:
    """Budgets guard running pods only."""
    ended = pod["status"].get("phase") in ("Succeeded", "Failed", "Pending")
    return ended or "deletionTimestamp" in pod["metadata"]


def _spend(store: Store, budget: Json, pod: Json, *, dry: bool) -> None:
    """Check and decrement. The budget is spent even if the deletion then meets a wrong UID."""
    meta, status, name = budget["metadata"], budget["status"], budget["metadata"]["name"]
    policy = budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
    if not is_ready(pod):
        healthy = status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0
        if policy == "AlwaysAllow" or healthy:
            return
    if status.get("observedGeneration", 0) < meta["generation"]:
        raise _too_many(
            f"The disruption budget {name} is still being processed by the server.", retry_after=10
        )
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise Refusal(
            403,
            "Forbidden",
            f'poddisruptionbudgets.policy "{name}" is forbidden: pdb disruptions allowed is negative',
        )
    if len(status.get("disruptedPods") or {}) > _MAX_DISRUPTED:
        raise Refusal(
            403, "Forbidden", f'poddisruptionbudgets.policy "{name}" is forbidden: DisruptedPods map too big'
        )
    if allowed == 0:
        raise _too_many(
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods and has "
            f"{status.get('currentHealthy', 0)} currently"
        )
    if dry:
        return

    def spend(changed: Json) -> None:
        changed["status"]["disruptionsAllowed"] = allowed - 1
        changed["status"].setdefault("disruptedPods", {})[pod["metadata"]["name"]] = stamp(store.clock)

    store.edit(budget, spend)


def _too_many(message: str, *, retry_after: int | None = None) -> Refusal:
    details: Json = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    headers = {}
    if retry_after is not None:
        details["retryAfterSeconds"] = retry_after
        headers["Retry-After"] = str(retry_after)
    return Refusal(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details=details,
        headers=headers,
    )


def _delete(store: Store, pod: Json, grace: int | None) -> None:
    if "deletionTimestamp" not in pod["metadata"]:
        pod = store.edit(pod, _disrupted)
    remove(store, pod, grace)


def _disrupted(pod: Json) -> None:
    pod["status"].setdefault("conditions", []).append(
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    )
