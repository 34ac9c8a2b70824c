"""Objects with UIDs, one growing resourceVersion, managed fields, and the rules every write meets."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fleet.clock import Clock
from simulator.kubernetes_api.errors import (
    Json,
    Refusal,
    bad_request,
    invalid,
    modified,
    not_found,
    precondition_failed,
)

Key = tuple[str, str]
#: Who writes where nobody else is named.
SERVER = "kube-apiserver"
KINDS = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "namespaces": ("v1", "Namespace"),
    "daemonsets": ("apps/v1", "DaemonSet"),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
}
_RESOURCES = {kind: resource for resource, (_, kind) in KINDS.items()}
_TOP = {"apiVersion", "kind", "metadata", "spec", "status"}
_METADATA = {
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
}
_NODE_SPEC = {"podCIDR", "podCIDRs", "providerID", "unschedulable", "taints", "configSource", "externalID"}
_MAX_NAME_CHARS = 63
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")


def stamp(clock: Clock, offset: float = 0.0) -> str:
    """Whole seconds, as the API keeps them."""
    return datetime.fromtimestamp(int(clock.now() + offset), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def random_uid() -> str:
    return str(uuid.uuid4())


class Store:
    """What etcd and the generic registry do. Not thread-safe: the API holds one lock around it.

    Objects that were given out are never altered: a change stores another one in their place.
    """

    def __init__(self, clock: Clock, *, new_uid: Callable[[], str] = random_uid) -> None:
        self.clock = clock
        self.version = 1000
        self._new_uid = new_uid
        self._objects: dict[str, dict[Key, Json]] = {resource: {} for resource in KINDS}
        self._in_order: dict[str, list[Key]] = {}

    def next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        try:
            return self._objects[resource][(namespace, name)]
        except KeyError:
            raise not_found(resource, name) from None

    def find(self, resource: str, name: str, namespace: str = "") -> Json | None:
        return self._objects[resource].get((namespace, name))

    def all(self, resource: str, namespace: str | None = None) -> list[Json]:
        """In etcd's order: by namespace and name."""
        found = self._objects[resource]
        order = self._in_order.get(resource)
        if order is None:
            order = self._in_order[resource] = sorted(found)
        return [found[key] for key in order if namespace is None or key[0] == namespace]

    @property
    def has_namespaces(self) -> bool:
        """A cluster made by hand may have none; then namespaces are not asked for."""
        return bool(self._objects["namespaces"])

    def create(self, resource: str, wanted: Json, *, manager: str = SERVER, dry: bool = False) -> Json:
        check_fields(resource, wanted)
        new = copy.deepcopy(wanted)
        meta = new["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if key in self._objects[resource]:
            raise Refusal(
                409,
                "AlreadyExists",
                f'{resource} "{meta["name"]}" already exists',
                details={"name": meta["name"], "kind": resource},
            )
        api_version, kind = KINDS[resource]
        new.update(apiVersion=api_version, kind=kind)
        meta.update(
            uid=self._new_uid(),
            resourceVersion=self.next_version(),
            creationTimestamp=stamp(self.clock),
            generation=1,
        )
        meta["managedFields"] = []
        new.setdefault("spec", {})
        new.setdefault("status", {})
        self._own(new, {}, manager)
        if dry:
            return new
        self._objects[resource][key] = new
        self._in_order.pop(resource, None)
        return new

    def update(self, current: Json, changed: Json, *, manager: str = SERVER, dry: bool = False) -> Json:
        """Store ``changed`` over ``current``. A change of nothing keeps the resourceVersion."""
        resource = _resource_of(current)
        meta, before = changed["metadata"], current["metadata"]
        sent = meta.get("resourceVersion")
        if sent not in (None, before["resourceVersion"]):
            raise modified(resource, before["name"])
        if meta.get("uid") not in (None, before["uid"]):
            raise precondition_failed(current, "uid", str(meta["uid"]))
        for field in _IMMUTABLE:
            if meta.get(field) != before.get(field):
                raise invalid(current["kind"], before["name"], f"metadata.{field}: field is immutable")
        check_fields(resource, changed)
        meta["resourceVersion"] = before["resourceVersion"]
        if changed == current:
            return current
        meta["resourceVersion"] = self.next_version()
        if changed.get("spec") != current.get("spec"):
            meta["generation"] = before["generation"] + 1
        self._own(changed, current, manager)
        if dry:
            return changed
        self._objects[resource][_key(current)] = changed
        return changed

    def edit(self, current: Json, change: Callable[[Json], None], *, manager: str = SERVER) -> Json:
        """``change`` works on a copy; the rules of ``update`` hold."""
        copied = copy.deepcopy(current)
        change(copied)
        return self.update(current, copied, manager=manager)

    def remove(self, current: Json) -> None:
        resource = _resource_of(current)
        self._objects[resource].pop(_key(current), None)
        self._in_order.pop(resource, None)
        self.next_version()

    def mark_deleted(self, current: Json, *, grace: int) -> Json:
        """Begin a graceful deletion; a second one may only shorten what is left."""
        until = stamp(self.clock, grace)
        known = current["metadata"].get("deletionTimestamp")
        if known is not None and known <= until:
            return current
        marked = copy.deepcopy(current)
        marked["metadata"].update(
            deletionTimestamp=until, deletionGracePeriodSeconds=grace, resourceVersion=self.next_version()
        )
        self._objects[_resource_of(current)][_key(current)] = marked
        return marked

    def _own(self, new: Json, old: Json, manager: str) -> None:
        """Field management of ordinary writes: who changes a field owns it (operation Update)."""
        changed = _leaves(new) ^ _leaves(old)
        values = {path for path in _leaves(new) & _leaves(old) if _at(new, path) != _at(old, path)}
        entries: list[Json] = copy.deepcopy(new["metadata"].get("managedFields") or [])
        for entry in entries:
            for path in changed | values:
                _drop(entry["fieldsV1"], path)
        kept = [entry for entry in entries if entry["fieldsV1"]]
        mine = next((entry for entry in kept if entry["manager"] == manager), None)
        won = (changed & _leaves(new)) | values
        if won:
            if mine is None:
                mine = {
                    "manager": manager,
                    "operation": "Update",
                    "apiVersion": "v1",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {},
                }
                kept.append(mine)
            for path in won:
                _put(mine["fieldsV1"], path)
            mine["time"] = stamp(self.clock)
        new["metadata"]["managedFields"] = kept


def check_fields(resource: str, wanted: Json) -> None:
    """Unknown fields and wrong types are errors here (a real server is as strict with fieldValidation)."""
    unknown = sorted(set(wanted) - _TOP)
    unknown += [f"metadata.{key}" for key in sorted(set(wanted.get("metadata") or {}) - _METADATA)]
    if resource == "nodes":
        unknown += [f"spec.{key}" for key in sorted(set(wanted.get("spec") or {}) - _NODE_SPEC)]
        if not isinstance((wanted.get("spec") or {}).get("unschedulable", False), bool):
            raise bad_request(
                "json: cannot unmarshal into Go struct field NodeSpec.spec.unschedulable of type bool"
            )
    if unknown:
        raise bad_request(
            "strict decoding error: " + ", ".join(f'unknown field "{name}"' for name in unknown)
        )
    for group in ("labels", "annotations"):
        for key, value in (wanted["metadata"].get(group) or {}).items():
            if not isinstance(value, str):
                raise bad_request(
                    f"json: cannot unmarshal into Go struct field ObjectMeta.metadata.{group} of type string"
                )
            if len(key.rpartition("/")[2]) > _MAX_NAME_CHARS:
                raise invalid(
                    KINDS[resource][1], wanted["metadata"]["name"], f"metadata.{group}: name part too long"
                )


def _resource_of(found: Json) -> str:
    return _RESOURCES[found["kind"]]


def _key(found: Json) -> Key:
    return (found["metadata"].get("namespace", ""), found["metadata"]["name"])


def _leaves(found: Json) -> set[tuple[str, ...]]:
    """The fields whose owners matter here: annotations, labels, and the first level of spec."""
    paths: set[tuple[str, ...]] = set()
    for group in ("annotations", "labels"):
        paths |= {("metadata", group, key) for key in (found.get("metadata", {}).get(group) or {})}
    return paths | {("spec", key) for key in (found.get("spec") or {})}


def _at(found: Json, path: tuple[str, ...]) -> Any:
    value: Any = found
    for key in path:
        value = value[key]
    return value


def _put(fields: Json, path: tuple[str, ...]) -> None:
    for key in path:
        fields = fields.setdefault(f"f:{key}", {})


def _drop(fields: Json, path: tuple[str, ...]) -> None:
    first = f"f:{path[0]}"
    if first not in fields:
        return
    if len(path) == 1:
        del fields[first]
        return
    _drop(fields[first], path[1:])
    if not fields[first]:
        del fields[first]
