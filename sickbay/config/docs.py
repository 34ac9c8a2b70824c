"""docs/configuration.md, made from the models: ``python -m sickbay.config.docs > docs/configuration.md``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sickbay.config.model import Config
from sickbay.config.schema import is_repeated, section_in

_INTRO = """\
# Configuration

<!-- Made from sickbay/config by `python -m sickbay.config.docs`; change the texts there. -->

One YAML file, given with `--config`. `sickbay config check FILE` validates it whole and names file, line,
path and remedy of every problem; nothing starts with a file that has one.

- Strict: an unknown key, a key given twice, a number in quotes and a text without are errors. All sections
  are checked, also those that this service does not read.
- `cluster`, `scheduler` and `metrics` are required, everything else has the default shown. An agent's file
  may have the `agent` section alone.
- YAML 1.2 types: only `true` and `false` are flags (`yes`, `no`, `on`, `off` are text). Anchors are allowed,
  tags and merge keys are not.
- Durations are seconds (the key's name says so). Human forms such as `10m` are for the command line.
- Relative paths are taken from the file's own folder. Secrets stand in files of their own, never here; a
  secret's file that everyone can read is a warning.
- Commands are argv lists and no shell runs them; they get SICKBAY_NODE, SICKBAY_INCIDENT and SICKBAY_GPU in
  their environment.

The smallest useful file:

```yaml
cluster: alpha
scheduler: {kind: slurm}
metrics: {source: scrape, scrape: {targets: ["n01:9400", "n02:9400"]}}
```

It observes: mode `observe` is the default, and nothing is done to any node. docs/examples/ has whole files.
"""
_KINDS: Mapping[Any, str] = {
    tuple: "list",
    Mapping: "mapping",
    bool: "true or false",
    Path: "path",
    int: "count",
    float: "number",
}
_UNITS = {"seconds": "s", "percent": "%", "days": "days"}


def render() -> str:
    """The page, as text that ends in one newline."""
    parts = [_INTRO, *_sections(Config, "", "Top level", None)]
    return "\n".join(parts).rstrip("\n") + "\n"


def _sections(model: type[BaseModel], prefix: str, title: str, info: FieldInfo | None) -> Iterator[str]:
    """A heading, a text and a table for this section, then the sections in it."""
    yield f"## {title}\n"
    text = (info.description if info is not None else None) or _doc(model)
    if prefix:
        yield f"{text}\n"
    rows = [
        f"| `{key}` | {_unit(key, field)} | {_default(field)} | {_meaning(field)} |"
        for key, field in model.model_fields.items()
        if section_in(field.annotation) is None or is_repeated(field.annotation)
    ]
    if rows:
        yield "| key | unit or type | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    for key, field in model.model_fields.items():
        inner = section_in(field.annotation)
        if inner is not None:
            path = f"{prefix}{key}{'[]' if is_repeated(field.annotation) else ''}"
            yield from _sections(
                inner, f"{path}.", f"`{path}`", None if is_repeated(field.annotation) else field
            )


def _doc(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _unit(key: str, field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "unit" in extra:
        return str(extra["unit"])
    suffix = key.rpartition("_")[2]
    return _UNITS.get(suffix) or _kind(field.annotation)


def _kind(annotation: Any) -> str:
    """A word for the type inside Annotated and Optional."""
    arguments = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) in (Union, UnionType) or hasattr(annotation, "__metadata__"):
        return _kind(arguments[0])
    origin = get_origin(annotation) or annotation
    if origin is Literal or (isinstance(origin, type) and issubclass(origin, Enum)):
        return "one word"
    return _KINDS.get(origin, "text")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return ""
    return f"`{json.dumps(_plain(value))}`"


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _meaning(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())
