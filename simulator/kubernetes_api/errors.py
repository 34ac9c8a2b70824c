"""Refusals as the API server words them: a code and a Status."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class Refusal(Exception):  # noqa: N818  # what is raised is an answer, not a defect
    """An answer that is not a success."""

    def __init__(
        self,
        code: int,
        reason: str | None,
        message: str,
        *,
        details: Json | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = headers or {}
        self.body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "code": code,
        }
        if reason is not None:
            self.body["reason"] = reason
        if details is not None:
            self.body["details"] = details


def not_found(resource: str, name: str) -> Refusal:
    return Refusal(
        404, "NotFound", f'{resource} "{name}" not found', details={"name": name, "kind": resource}
    )


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def invalid(kind: str, name: str, message: str) -> Refusal:
    return Refusal(
        422, "Invalid", f'{kind} "{name}" is invalid: {message}', details={"name": name, "kind": kind}
    )


def modified(resource: str, name: str) -> Refusal:
    return Refusal(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again",
        details={"name": name, "kind": resource},
    )


def precondition_failed(found: Json, field: str, wanted: str) -> Refusal:
    """``field``: ``uid`` or ``resourceVersion``."""
    shown = "UID" if field == "uid" else "ResourceVersion"
    name = found["metadata"]["name"]
    return Refusal(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {found["kind"]} "{name}": Precondition failed: {shown} in '
        f"precondition: {wanted}, {shown} in object meta: {found['metadata'].get(field)}",
        details={"name": name, "kind": found["kind"]},
    )


def forbidden(user: str, verb: str, resource: str, name: str = "") -> Refusal:
    shown = f'{resource} "{name}"' if name else resource
    return Refusal(
        403,
        "Forbidden",
        f'{shown} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group "" '
        "at the cluster scope",
        details={"name": name, "kind": resource},
    )
