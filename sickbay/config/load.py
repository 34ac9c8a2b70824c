"""Read a configuration file, or say in one line per problem why it cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from pydantic import ValidationError

from sickbay.config.checks import Remark, find_problems, find_warnings
from sickbay.config.errors import ConfigError
from sickbay.config.messages import explain
from sickbay.config.model import AgentConfig, Config
from sickbay.config.source import MAX_BYTES, Source, parse_yaml, problem_line

Purpose = Literal["serve", "agent"]
_ConfigT = TypeVar("_ConfigT", bound=AgentConfig)


@overload
def load_config(path: Path, purpose: Literal["serve"] = "serve") -> Config: ...


@overload
def load_config(path: Path, purpose: Literal["agent"]) -> AgentConfig: ...


def load_config(path: Path, purpose: Purpose = "serve") -> Config | AgentConfig:
    """The configuration in ``path``; for ``agent`` the file may have the agent section alone.

    Relative paths in it are taken from the file's own folder. Raises ConfigError.
    """
    source = parse_yaml(_read(path), str(path))
    if purpose == "agent":
        return _validate(AgentConfig, source, path)
    return _validate(Config, source, path)


def parse_config(data: Mapping[str, Any], name: str = "configuration") -> Config:
    """A configuration from plain data (the demo, tests): the same checks, without lines of a file."""
    return _validate(Config, Source(name, dict(data)), None)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([f"{path}: no such file; check the path given with --config"]) from None
    except IsADirectoryError:
        raise ConfigError([f"{path}: is a folder; give the configuration file itself"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read ({error.strerror}); check its rights"]) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError([f"{path}: larger than {MAX_BYTES} bytes; is this the right file?"])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: not a UTF-8 text file; is this the right file?"]) from None


def _validate(model: type[_ConfigT], source: Source, path: Path | None) -> _ConfigT:
    if not isinstance(source.value, dict):
        kind = "a list" if isinstance(source.value, list) else "a single value"
        raise ConfigError([f"{source.name}:1: is {kind}, not a mapping of keys; see docs/configuration.md"])
    base = path.absolute().parent if path is not None else None
    try:
        config = model.model_validate(source.value, context={"base": base})
    except ValidationError as error:
        explained = (explain(model, detail) for detail in error.errors(include_url=False))
        raise ConfigError(_lines(source, [Remark(loc, text) for loc, text in explained])) from None
    problems = find_problems(config)
    if problems:
        raise ConfigError(_lines(source, problems))
    config.loaded_from(path, tuple(_lines(source, find_warnings(config))))
    return config


def _lines(source: Source, remarks: list[Remark]) -> list[str]:
    """In the order of the file, so that a person can walk through it once."""
    placed = [(source.line_of(remark.loc), remark) for remark in remarks]
    placed.sort(key=lambda item: item[0])
    return [problem_line(source.name, line, remark.loc, remark.text) for line, remark in placed]
