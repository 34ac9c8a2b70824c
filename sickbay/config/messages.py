"""Pydantic's errors in our words: what is wrong; what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from sickbay.config.schema import section_at, walk
from sickbay.config.source import Loc

_MAPPING = "must be a mapping of keys"
_LIST = "must be a list; write [ ... ] or one '- ' per line"
_NUMBER = "must be a number"
_TYPES: Mapping[str, str] = {
    "model_type": _MAPPING,
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "tuple_type": _LIST,
    "list_type": _LIST,
    "string_type": "must be text; put it in quotes",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": _NUMBER,
    "finite_number": "must be a finite number",
}
_BOUNDS: Mapping[str, tuple[str, str]] = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def explain(model: type[BaseModel], error: ErrorDetails) -> tuple[Loc, str]:
    """(where, what is wrong; what to do) for one of pydantic's errors."""
    loc = tuple(part for part in error["loc"] if part != "[key]")
    kind = error["type"]
    context: Mapping[str, Any] = error.get("ctx") or {}
    text: str
    if kind == "extra_forbidden":
        text = _unknown_key(model, loc)
    elif kind == "missing":
        text = "is missing; add it"
    elif kind == "value_error":
        text = str(context.get("error", error["msg"]))
    elif kind in ("enum", "literal_error"):
        text = _one_of(error["input"], _words(context))
    elif kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        text = f"is {_shown(error['input'])}; it must be {words} {context.get(key):g}"
    elif kind in _TYPES:
        text = _wrong_type(error["input"], _TYPES[kind])
    else:
        text = f"{error['msg'][:1].lower()}{error['msg'][1:]}; see docs/configuration.md"
    return loc, text


def _unknown_key(model: type[BaseModel], loc: Loc) -> str:
    key, section = str(loc[-1]), section_at(model, loc[:-1])
    known = list(section.model_fields) if section is not None else []
    # timeout is meant to be timeout_seconds: a unit left out is the most common slip.
    names = {name: name for name in known} | {name.rpartition("_")[0]: name for name in known if "_" in name}
    near = difflib.get_close_matches(key, names, n=1)
    if near:
        return f"unknown key; did you mean {names[near[0]]}?"
    homes = [path for path, name, _ in walk(model) if name == key]
    if len(homes) == 1:
        return f"unknown key here; it belongs at {homes[0]}"
    return f"unknown key; known here: {', '.join(known)}"


def _wrong_type(value: Any, wanted: str) -> str:
    if value is None:
        return f"is empty, but {wanted}; write a value or remove the key"
    if isinstance(value, str) and wanted is _NUMBER:
        return f"is {_shown(value)}, but {wanted}; write it without quotes and units"
    head, _, advice = wanted.partition("; ")
    return f"is {_shown(value)}, but {head}{'; ' + advice if advice else ''}"


def _one_of(value: Any, words: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(value), words, n=1)
    hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(words)}"
    return (
        f"is {_shown(value)}, not one of {', '.join(words)}; {hint}"
        if near
        else f"is {_shown(value)}; {hint}"
    )


def _words(context: Mapping[str, Any]) -> list[str]:
    """Pydantic lists what it expected as ``'a', 'b' or 'c'`` (or as reprs of enum members)."""
    return re.findall(r"'([^']*)'", str(context.get("expected", "")))


_SHOWN: Sequence[tuple[type, Callable[[Any], str]]] = (
    (bool, lambda value: str(value).lower()),
    (dict, lambda _: "a mapping"),
    (list, lambda _: "a list"),
    (str, lambda value: f"the text {value[:60]!r}"),
)


def _shown(value: Any) -> str:
    for kind, show in _SHOWN:
        if isinstance(value, kind):
            return show(value)
    return "empty" if value is None else f"{value!r:.60}"
