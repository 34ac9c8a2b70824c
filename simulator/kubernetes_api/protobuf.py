"""The one protobuf body this server reads: ``kubectl auth can-i`` sends its question in no other form.

Envelope: Kubernetes API concepts, "Protobuf encoding" (``k8s\\0`` and a runtime.Unknown, whose field 2 is the
object). Field numbers: k8s.io/api/authorization/v1/generated.proto.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.kubernetes_api.errors import Json, bad_request

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"
_RAW, _SPEC, _RESOURCE = 2, 2, 1
_ATTRIBUTES = {
    1: "namespace",
    2: "verb",
    3: "group",
    4: "version",
    5: "resource",
    6: "subresource",
    7: "name",
}
_LENGTH_DELIMITED = 2


def access_review(body: bytes) -> Json:
    """A SelfSubjectAccessReview about a resource, as its JSON would be; a Refusal for anything else."""
    if not body.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message")
    try:
        spec = _field(_field(body[len(_MAGIC) :], _RAW), _SPEC)
        parts = list(_fields(_field(spec, _RESOURCE)))
        attributes = {_ATTRIBUTES[number]: value.decode() for number, value in parts if number in _ATTRIBUTES}
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise bad_request(f"this server does not read this protobuf message: {error}") from error
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }


def _field(message: bytes, wanted: int) -> bytes:
    for number, value in _fields(message):
        if number == wanted:
            return value
    raise ValueError(f"field {wanted} is missing")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields, in order; others are skipped by refusing them."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 != _LENGTH_DELIMITED:
            raise ValueError(f"field {tag >> 3} is of wire type {tag & 7}")
        length, at = _varint(message, at)
        if at + length > len(message):
            raise ValueError("the message is cut off")
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
