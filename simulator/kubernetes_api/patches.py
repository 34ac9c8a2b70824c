"""The three patches of the API: merge (RFC 7386), JSON (RFC 6902), strategic merge.

Strategic merge: Kubernetes documentation, "Update API Objects in Place Using kubectl patch", and the
``patchStrategy`` tags of core/v1. Lists are replaced unless their field is tagged; ``spec.taints`` is not.
"""

from __future__ import annotations

import copy
from typing import Any

from simulator.kubernetes_api.errors import Json, Refusal, bad_request

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"
TYPES = (JSON, MERGE, STRATEGIC)
# Fields whose lists are merged, and the key of their elements ("" for lists of plain values).
_MERGE_KEYS = {
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "env": "name",
    "ownerReferences": "uid",
    "finalizers": "",
}


def apply(kind: str, target: Json, patch: Any) -> Json:
    """``target`` after ``patch`` of the content type ``kind``; a Refusal for what does not fit."""
    if kind == JSON:
        if not isinstance(patch, list):
            raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
        return _json_patch(target, patch)
    if not isinstance(patch, dict):
        raise bad_request("the body is no object")
    return dict(merge_patch(target, patch) if kind == MERGE else _strategic(target, patch))


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def _strategic(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [one for one in result.get(field) or [] if one not in value]
        elif key.startswith("$"):
            continue  # $setElementOrder, $retainKeys: the order is as it comes
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, list):
            result[key] = _merged_list(key, result.get(key) or [], value)
        else:
            result[key] = _strategic(result.get(key), value)
    return result


def _merged_list(field: str, old: list[Any], new: list[Any]) -> list[Any]:
    merge_key = _MERGE_KEYS.get(field)
    if merge_key is None or {"$patch": "replace"} in new:
        return [copy.deepcopy(one) for one in new if one != {"$patch": "replace"}]
    if not merge_key:
        return [*old, *(one for one in new if one not in old)]
    merged = list(old)
    for one in new:
        if not isinstance(one, dict) or merge_key not in one:
            raise bad_request(f"map: {one} does not contain declared merge key: {merge_key}")
        at = next((i for i, known in enumerate(merged) if known.get(merge_key) == one[merge_key]), None)
        if one.get("$patch") == "delete":
            merged = [known for known in merged if known.get(merge_key) != one[merge_key]]
        elif at is None:
            merged.append(copy.deepcopy(one))
        else:
            merged[at] = _strategic(merged[at], one)
    return merged


def _json_patch(target: Json, operations: list[Any]) -> Json:
    document = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise bad_request("an operation without a path")
        _operate(document, operation)
    return document


def _operate(document: Json, operation: Json) -> None:
    kind, path = operation.get("op"), operation["path"]
    keys = [key.replace("~1", "/").replace("~0", "~") for key in path.split("/")[1:]]
    parent, last = _parent(document, keys, path)
    there = _has(parent, last)
    if kind == "test":
        if not there or _get(parent, last) != operation.get("value"):
            raise _unprocessable(f"testing value {path} failed: test failed")
    elif kind == "remove":
        if not there:
            raise _unprocessable(f"unable to remove nonexistent key: {last}: missing value")
        del parent[int(last) if isinstance(parent, list) else last]
    elif kind == "replace":
        if not there:
            raise _unprocessable(
                f"replace operation does not apply: doc is missing key: {path}: missing value"
            )
        _set(parent, last, operation.get("value"))
    elif kind == "add":
        if isinstance(parent, list):
            parent.insert(len(parent) if last == "-" else int(last), copy.deepcopy(operation.get("value")))
        else:
            _set(parent, last, operation.get("value"))
    else:
        raise bad_request(f"this server does not know the operation {kind!r}")


def _parent(document: Any, keys: list[str], path: str) -> tuple[Any, str]:
    if not keys:
        raise bad_request("this server patches no whole document")
    for key in keys[:-1]:
        if not _has(document, key):
            raise _unprocessable(f"doc is missing path: {path}: missing value")
        document = _get(document, key)
    if not isinstance(document, dict | list):
        raise _unprocessable(f"doc is missing path: {path}: missing value")
    return document, keys[-1]


def _has(parent: Any, key: str) -> bool:
    if isinstance(parent, list):
        return key.isdecimal() and int(key) < len(parent)
    return isinstance(parent, dict) and key in parent


def _get(parent: Any, key: str) -> Any:
    return parent[int(key)] if isinstance(parent, list) else parent[key]


def _set(parent: Any, key: str, value: Any) -> None:
    parent[int(key) if isinstance(parent, list) else key] = copy.deepcopy(value)


def _unprocessable(message: str) -> Refusal:
    return Refusal(
        422, "Invalid", f"the server rejected our request due to an error in our request: {message}"
    )
