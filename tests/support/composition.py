"""The services of compose/compose.yaml as plain processes on loopback ports, from the same files.

Nothing but places is changed: the addresses of services become loopback ports, the targets of mounts become
folders of the test, and the intervals of Prometheus become a second. ``changed_leaves`` shows what differs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "compose"
FILE = COMPOSE / "compose.yaml"
QUICK = "1s"
INTERVALS = ("scrape_interval", "scrape_timeout", "evaluation_interval", "interval")
_INTERVAL = re.compile(rf"^(\s*(?:- )?(?:{'|'.join(INTERVALS)}): )\d+s\b", re.MULTILINE)


def services() -> Mapping[str, Mapping[str, Any]]:
    """The services of the composition, anchors and merge keys resolved."""
    found: Mapping[str, Mapping[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
    return found


def leaves(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, scalar) of everything in a YAML document."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from leaves(value, f"{path}.{key}")
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from leaves(value, f"{path}[{number}]")
    else:
        yield path, document


def changed_leaves(before: str, after: str) -> dict[str, tuple[Any, Any]]:
    """Path -> (before, after) of every scalar that differs between two YAML texts."""
    old, new = dict(leaves(yaml.safe_load(before))), dict(leaves(yaml.safe_load(after)))
    return {path: (old.get(path), new.get(path)) for path in {**old, **new} if old.get(path) != new.get(path)}


class Places:
    """Where the composition's addresses and paths are in this test.

    ``addresses``: address in the composition -> loopback address.
    """

    def __init__(self, folder: Path, addresses: Mapping[str, str]) -> None:
        self.folder = folder
        self.addresses = dict(addresses)
        self.changes: dict[str, dict[str, tuple[Any, Any]]] = {}

    def volume(self, name: str) -> Path:
        path = self.folder / "volumes" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def lay_out(self, service: str) -> dict[str, str]:
        """Put a service's mounts where the test can use them: container path -> local path."""
        mounts = services()[service].get("volumes", [])
        local = {mount["target"]: str(self._local(service, mount)) for mount in mounts}
        for mount in mounts:
            if mount["type"] == "bind":
                self._copy((COMPOSE / mount["source"]).resolve(), Path(local[mount["target"]]), local)
        return local

    def command(self, service: str, paths: Mapping[str, str]) -> list[str]:
        """The service's own arguments, at these places."""
        return [self.moved(argument, paths) for argument in services()[service]["command"]]

    def moved(self, text: str, paths: Mapping[str, str]) -> str:
        """``text`` with every address and mounted path of the composition replaced."""
        for there, here in sorted({**paths, **self.addresses}.items(), key=lambda pair: -len(pair[0])):
            text = re.sub(rf"(?<![\w.-]){re.escape(there)}(?![\w-])", here, text)
        return text

    def _local(self, service: str, mount: Mapping[str, Any]) -> Path:
        if mount["type"] == "volume":
            return self.volume(mount["source"])
        return self.folder / service / str(mount["target"]).lstrip("/")

    def _copy(self, source: Path, target: Path, paths: Mapping[str, str]) -> None:
        if source.is_dir():
            for path in sorted(source.iterdir()):
                self._copy(path, target / path.name, paths)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix not in (".yml", ".yaml"):
            shutil.copy(source, target)
            return
        before = source.read_text()
        after = _INTERVAL.sub(rf"\g<1>{QUICK}", self.moved(before, paths))
        target.write_text(after)
        self.changes[source.relative_to(ROOT).as_posix()] = changed_leaves(before, after)


def make_tokens(places: Places) -> subprocess.CompletedProcess[str]:
    """Run the composition's own token maker over its volumes."""
    paths = places.lay_out("tokens")
    script = services()["tokens"]["entrypoint"][1]
    folders = [
        paths[mount["target"]] for mount in services()["tokens"]["volumes"] if mount["type"] == "volume"
    ]
    return subprocess.run(
        ["/bin/sh", paths[script], *folders], check=True, capture_output=True, text=True, timeout=30
    )
