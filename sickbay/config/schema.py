"""What the models say about themselves: which section stands where. For typo hints and the docs."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def section_in(annotation: Any) -> type[BaseModel] | None:
    """The section model inside an annotation: itself, or within Optional, Annotated, a tuple, a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        found = section_in(part)
        if found is not None:
            return found
    return None


def is_repeated(annotation: Any) -> bool:
    """True for a list of sections."""
    if get_origin(annotation) in (Union, types.UnionType):
        return any(is_repeated(part) for part in get_args(annotation))
    return get_origin(annotation) is tuple


def section_at(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel] | None:
    """The section that stands at ``loc``; None when there is none."""
    current: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, int):
            continue
        if current is None or part not in current.model_fields:
            return None
        current = section_in(current.model_fields[part].annotation)
    return current


def walk(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, FieldInfo]]:
    """(path, key, field) of every key, sections before what is in them."""
    for key, info in model.model_fields.items():
        path = f"{prefix}{key}"
        yield path, key, info
        inner = section_in(info.annotation)
        if inner is not None:
            yield from walk(inner, f"{path}{'[]' if is_repeated(info.annotation) else ''}.")
