"""Scalar types of the configuration: strict, bounded, each with a message that says what to write.

A validator's ValueError reads ``what is wrong; what to do``: the loader puts file, line and path in front.
Strict means that ``"15"`` is no number and ``5`` is no text: a guess about what was meant is how a fleet
gets drained by a typo.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import signal
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo

from fleet.identity import is_node_name
from sickbay.config.hostlist import expand_hostlist

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_RULE_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_-]*=[A-Za-z0-9._-]*")
_CURRENCY = re.compile(r"[A-Z]{3}")
_MAX_PORT = 65_535
# What scancel --signal takes by name; real-time signals have no portable names.
SIGNAL_NAMES = frozenset(
    member.name.removeprefix("SIG") for member in signal.Signals if not member.name.startswith("SIGRT")
)


def _printable(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; write a value or remove the key")
    if not text.isprintable():
        raise ValueError("contains control characters; write plain text on one line")
    return text


def _pattern(pattern: re.Pattern[str], advice: str) -> AfterValidator:
    def check(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise ValueError(f"{text[:80]!r} is not allowed here; {advice}")
        return text

    return AfterValidator(check)


def _node_name(text: str) -> str:
    if not is_node_name(text):
        raise ValueError(f"{text[:80]!r} is no single host name; write one name, such as n01")
    return text


def _hostlist(text: str) -> str:
    expand_hostlist(text)
    return text


def check_url(text: str) -> str:
    """The URL itself is never repeated in a message: it may hold a password."""
    advice = "write a whole URL such as http://host:port"
    try:
        parts = urlsplit(text)
        port_ok = parts.port is None or parts.port > 0
    except ValueError:
        raise ValueError(f"is no URL; {advice}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"is no http or https URL; {advice}")
    if not parts.hostname or not port_ok or any(mark.isspace() for mark in text):
        raise ValueError(f"is no URL with a host; {advice}")
    return text


def split_listen(text: str) -> tuple[str, int]:
    """``127.0.0.1:8470`` or ``[::1]:8470`` -> (host, port); port 0 means any free port. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    advice = "write host:port, such as 127.0.0.1:8470 (0.0.0.0:8470 for every address)"
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port[:6]) > _MAX_PORT:
        raise ValueError(f"{text[:80]!r} is no listen address; {advice}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text[:80]!r} is no listen address; put an IPv6 address in brackets: [::1]:8470")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if not is_node_name(host):
            raise ValueError(f"{text[:80]!r} is no listen address; {advice}") from None
    return host, int(port)


def is_loopback(host: str) -> bool:
    """True only for addresses that no other machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(text: str) -> str:
    split_listen(text)
    return text


def _argv(value: Any) -> Any:
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError:
            words = [value]
        listed = ", ".join(f'"{word}"' for word in words[:8])
        raise ValueError(f"is text; write it as a list: [{listed}] (no shell runs it)")  # noqa: TRY004
    if isinstance(value, list | tuple) and not value:
        raise ValueError("is an empty command; write the program and its arguments, or null")
    return value


def _path_text(value: Any) -> Any:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is no path; write the path as text")  # noqa: TRY004
    return _printable(value)


def base_folder(info: ValidationInfo) -> Path | None:
    """The folder of the file being read (absolute), None when the text came from elsewhere."""
    context = info.context
    base = context.get("base") if isinstance(context, dict) else None
    return base if isinstance(base, Path) else None


def _resolve(path: Path, info: ValidationInfo) -> Path:
    base = base_folder(info)
    return path if base is None else base / path


def _signal(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is no signal name; write a name such as USR1")  # noqa: TRY004
    name = value.upper().removeprefix("SIG")
    if name not in SIGNAL_NAMES:
        raise ValueError(f"{value[:80]!r} is no signal name; write a name such as USR1 or TERM")
    if name in ("KILL", "STOP"):
        raise ValueError(f"{name} cannot be caught by a job, so it is no checkpoint notice; use USR1 or TERM")
    return name


Text = Annotated[str, Strict(), AfterValidator(_printable)]
Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=0, le=1_000_000)]
PositiveCount = Annotated[int, Strict(), Field(ge=1, le=1_000_000)]
Seconds = Annotated[float, Strict(), Field(ge=0, le=366 * 86_400, allow_inf_nan=False)]
PositiveSeconds = Annotated[float, Strict(), Field(gt=0, le=366 * 86_400, allow_inf_nan=False)]
Rate = Annotated[float, Strict(), Field(gt=0, le=1_000_000, allow_inf_nan=False)]
Percent = Annotated[float, Strict(), Field(ge=0, le=100, allow_inf_nan=False)]
Price = Annotated[float, Strict(), Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Name = Annotated[
    Text, _pattern(_NAME, "use letters, digits, '_', '.', '-', at most 63 and a letter or digit first")
]
RuleId = Annotated[Text, _pattern(_RULE_ID, "a rule's id is lower-case letters, digits and '-'")]
EnvName = Annotated[Text, _pattern(_ENV_NAME, "use letters, digits and '_', such as SLURM_CONF")]
LabelSelector = Annotated[Text, _pattern(_LABEL, 'write one "key=value"')]
Currency = Annotated[Text, _pattern(_CURRENCY, "write a three-letter code such as USD")]
NodeName = Annotated[Text, AfterValidator(_node_name)]
Hostlist = Annotated[Text, AfterValidator(_hostlist)]
Url = Annotated[Text, AfterValidator(check_url)]
Listen = Annotated[Text, AfterValidator(_listen)]
Argv = Annotated[tuple[Text, ...], BeforeValidator(_argv)]
FilePath = Annotated[Path, BeforeValidator(_path_text), AfterValidator(_resolve)]
SignalName = Annotated[str, BeforeValidator(_signal)]
