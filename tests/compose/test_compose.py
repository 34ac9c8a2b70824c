"""The composition as files: what it names exists, what it runs is confined, what belongs together agrees."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.clock import ManualClock
from sickbay.cli import run
from sickbay.config import load_config
from sickbay.simulation.orders import read_script
from simulator.fleet import SimulatedFleet
from tests.support.composition import COMPOSE, FILE, ROOT, Places, make_tokens, services
from tests.support.prometheus_servers import program, require_prometheus

DOCUMENT: Mapping[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES = services()
EVERY = pytest.mark.parametrize("name", sorted(SERVICES))
#: The keys of the Compose specification (05-services.md) that are used here; a misspelt one is none of them.
SERVICE_KEYS = frozenset(
    {
        *("image", "build", "user", "group_add", "command", "entrypoint", "environment", "ports", "volumes"),
        *("depends_on", "healthcheck", "restart", "read_only", "cap_drop", "security_opt", "pids_limit"),
        *("tmpfs", "network_mode", "stop_grace_period"),
    }
)


def mounts(kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, service in SERVICES.items():
        for mount in service.get("volumes", []):
            if mount["type"] == kind:
                yield name, mount


def config_of(path: str) -> Any:
    return yaml.safe_load((COMPOSE / path).read_text())


# -- the file itself


def test_top_level() -> None:
    assert set(DOCUMENT) - {"name", "services", "volumes"} == {"x-hardened", "x-sickbay"}
    assert set(SERVICES) == {"tokens", "fleet", "sickbay", "alertmanager", "prometheus", "grafana"}


@EVERY
def test_a_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert set(service) <= SERVICE_KEYS
    user, _, _ = service["user"].partition(":")
    assert user.isdigit()
    assert int(user) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["pids_limit"] > 0


@EVERY
def test_an_image_is_pinned(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].partition(":")
    assert image
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag), "a whole version, no moving tag"


@EVERY
def test_a_service_says_when_it_is_well(name: str) -> None:
    service = SERVICES[name]
    if service["restart"] == "no":
        assert "healthcheck" not in service
        return
    check = service["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period"} <= set(check)


@EVERY
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port), port


@EVERY
def test_a_dependency_can_come_true(name: str) -> None:
    for other, wanted in SERVICES[name].get("depends_on", {}).items():
        if wanted["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other]
        else:
            assert wanted["condition"] == "service_completed_successfully"
            assert SERVICES[other]["restart"] == "no"


def test_every_bind_mount_is_a_file_of_the_repository_and_read_only() -> None:
    found = list(mounts("bind"))
    assert len(found) >= 9
    for name, mount in found:
        assert mount["read_only"] is True, (name, mount)
        assert mount["source"].startswith(("./", "../")), "no path of the host"
        source = (COMPOSE / mount["source"]).resolve()
        assert source.is_relative_to(ROOT)
        assert source.exists(), mount


def test_volumes_are_declared_used_and_written_by_one_service() -> None:
    writers: dict[str, list[str]] = {name: [] for name in DOCUMENT["volumes"]}
    for name, mount in mounts("volume"):
        if not mount.get("read_only"):
            writers[mount["source"]].append(name)
        else:
            # An empty volume takes owner and content of whoever mounts it first: only its writer may be that.
            assert mount["volume"] == {"nocopy": True}, (name, mount)
    assert {volume: len(names) for volume, names in writers.items()} == dict.fromkeys(DOCUMENT["volumes"], 1)


def test_paths_in_commands_and_environment_are_mounted_or_the_images_own() -> None:
    own = ("/bin/sh",)
    for name, service in SERVICES.items():
        targets = tuple(mount["target"] for mount in service.get("volumes", []))
        words = [*service.get("command", []), *service.get("entrypoint", [])]
        words += service.get("environment", {}).values()
        for word in words:
            path = word.partition("=")[2] if word.startswith("--") else word
            if path.startswith("/") and path not in own:
                assert any(Path(path).is_relative_to(target) for target in targets), (name, path)


# -- the image


def test_the_dockerfile_copies_what_the_wheel_is_made_of_and_runs_as_nobody_special() -> None:
    text = (COMPOSE / "Dockerfile").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = {
        word for line in re.findall(r"^COPY (?!--)(.+)$", text, re.MULTILINE) for word in line.split()[:-1]
    }
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    assert copied == packages | {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in copied)
    allowed = {
        line[1:]
        for line in (COMPOSE / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert allowed == copied
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert bases
    assert all(re.fullmatch(r"python:\d+\.\d+\.\d+-slim-bookworm", base) for base in bases)
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    assert SERVICES["sickbay"]["user"] == "10001:10001"
    version = project["project"]["version"]
    assert SERVICES["sickbay"]["image"] == f"sickbay:{version}"


# -- what belongs together


def test_targets_name_the_fleet_that_is_started() -> None:
    arguments = SERVICES["fleet"]["command"]
    count = int(next(word for word in arguments if word.startswith("--nodes=")).removeprefix("--nodes="))
    names = SimulatedFleet(clock=ManualClock(), nodes=count).names
    cluster = config_of("sickbay.yaml")["cluster"]
    dcgm, agents = config_of("prometheus/targets/dcgm.yml"), config_of("prometheus/targets/agents.yml")
    for group, node in zip(dcgm, names, strict=True):
        assert group["targets"] == ["fleet:9400"]
        assert group["labels"]["__metrics_path__"] == f"/nodes/{node}/metrics"
        assert (group["labels"]["node"], group["labels"]["cluster"]) == (node, cluster)
    for number, (group, node) in enumerate(zip(agents, names, strict=True)):
        assert group["targets"] == [f"fleet:{9871 + number}"]
        assert (group["labels"]["node"], group["labels"]["cluster"]) == (node, cluster)
    assert "--listen=0.0.0.0:9400" in arguments
    assert "--agents-listen=0.0.0.0:9871" in arguments
    assert config_of("prometheus/targets/sickbay.yml")[0]["labels"] == {"cluster": cluster}


def test_every_file_that_prometheus_names_is_there() -> None:
    config = config_of("prometheus/prometheus.yml")
    discovered = [*config["scrape_configs"], *config["alerting"]["alertmanagers"]]
    files = [file for part in discovered for sd in part["file_sd_configs"] for file in sd["files"]]
    assert len(files) == 4
    assert all((COMPOSE / "prometheus" / file).is_file() for file in files)
    assert sorted((COMPOSE / "prometheus/targets").iterdir()) == sorted(
        COMPOSE / "prometheus" / file for file in files
    )
    assert config["rule_files"] == ["rules/*.yml"]
    rules = next(m for _, m in mounts("bind") if m["target"] == "/etc/prometheus/rules")
    assert len(list((COMPOSE / rules["source"]).glob("*.yml"))) >= 3


def test_every_address_is_a_service_of_the_composition() -> None:
    """``name:port`` of the configuration files: a service, and the port that it listens on."""
    listening = {("fleet", "9400"), ("sickbay", "8470"), ("prometheus", "9090"), ("alertmanager", "9093")}
    listening |= {("fleet", str(port)) for port in range(9871, 9879)}
    texts = [path.read_text() for path in COMPOSE.rglob("*.y*ml")]
    texts.append((ROOT / "alerts/alertmanager/alertmanager.yml").read_text())
    named = {
        (host, port)
        for text in texts
        for host, port in re.findall(r"(?:https?://|\")([a-z]+):(\d{4,5})\b", text)
        if host != "localhost"
    }
    assert named == listening


def test_the_webhooks_token_is_the_one_that_the_controller_knows() -> None:
    webhook = yaml.safe_load((ROOT / "alerts/alertmanager/alertmanager.yml").read_text())
    configs = [c for receiver in webhook["receivers"] for c in receiver.get("webhook_configs", [])]
    (config,) = configs
    assert config["url"] == "http://sickbay:8470/api/v1/alerts"
    presented = _in_volume("alertmanager", config["http_config"]["authorization"]["credentials_file"])
    tokens = {token["role"]: token["token_file"] for token in config_of("sickbay.yaml")["http"]["tokens"]}
    assert (
        presented == _in_volume("sickbay", tokens["alertmanager"]) == ("alertmanager-token", "sickbay-token")
    )


def _in_volume(service: str, path: str) -> tuple[str, str]:
    """(volume, file) that a path of a container is."""
    for mount in SERVICES[service]["volumes"]:
        if mount["type"] == "volume" and Path(path).is_relative_to(mount["target"]):
            return mount["source"], Path(path).relative_to(mount["target"]).as_posix()
    raise AssertionError(f"{service}: {path} is on no volume")


def test_grafana_finds_its_datasource_and_the_committed_boards() -> None:
    (source,) = config_of("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert (
        source["jsonData"]["timeInterval"]
        == config_of("prometheus/prometheus.yml")["global"]["scrape_interval"]
    )
    (provider,) = config_of("grafana/provisioning/dashboards/sickbay.yml")["providers"]
    boards = next(m for _, m in mounts("bind") if m["target"] == provider["options"]["path"])
    folder = (COMPOSE / boards["source"]).resolve()
    assert folder == ROOT / "dashboards/json"
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.parent == Path(provider["options"]["path"])
    assert (folder / home.name).is_file()
    targets = {m["target"] for name, m in mounts("bind") if name == "grafana"}
    assert {"/etc/grafana/provisioning/datasources", "/etc/grafana/provisioning/dashboards"} <= targets


def test_the_script_of_faults_can_be_played() -> None:
    fleet = SimulatedFleet(clock=ManualClock(), nodes=8)
    faults = read_script(COMPOSE / "faults.yaml", fleet)
    assert [fault.at_seconds for fault in faults] == sorted(fault.at_seconds for fault in faults)
    assert len({fault.node for fault in faults}) == len(faults) == 5
    assert all(fault.expected for fault in faults)


# -- tokens


def test_tokens_are_made_once_for_the_group_and_for_nobody_else(tmp_path: Path) -> None:
    places = Places(tmp_path, {})
    assert make_tokens(places).stdout == ""
    first = {path: path.read_text() for path in (tmp_path / "volumes").rglob("*") if path.is_file()}
    assert len(first) == len(set(first.values())) == 4
    for path, text in first.items():
        assert re.fullmatch(r"[0-9a-f]{64}", text)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    make_tokens(places)
    assert {path: path.read_text() for path in first} == first
    for service, variable in (
        ("grafana", "GF_SECURITY_ADMIN_PASSWORD__FILE"),
        ("sickbay", "SICKBAY_TOKEN_FILE"),
    ):
        volume, name = _in_volume(service, SERVICES[service]["environment"][variable])
        assert (places.volume(volume) / name).is_file()


def test_who_reads_a_token_without_owning_it_is_in_its_group() -> None:
    for name, mount in mounts("volume"):
        if mount["source"] in ("tokens", "alertmanager-token"):
            service = SERVICES[name]
            assert service["user"] == "10001:10001" or service["group_add"] == ["10001"], name


# -- the programs' own word


def test_the_controllers_configuration_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = Places(tmp_path, {})
    make_tokens(places)
    paths = places.lay_out("sickbay")
    file = paths["/etc/sickbay/sickbay.yaml"]
    assert run(["config", "check", file]) == 0
    assert capsys.readouterr().err == ""
    config = load_config(Path(file))
    assert config.warnings == ()
    assert config.scheduler.simulated.url == "http://fleet:9400"


@pytest.mark.services
def test_promtool_takes_prometheus_configuration_with_its_rules(tmp_path: Path) -> None:
    require_prometheus()
    paths = Places(tmp_path, {}).lay_out("prometheus")
    # A rule file that Prometheus would not read is not checked either: the count shows that all were.
    done = _run(program("promtool"), "check", "config", paths["/etc/prometheus/prometheus.yml"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"SUCCESS: \d+ rules found", done.stdout)) == 3


@pytest.mark.services
def test_amtool_takes_alertmanagers_configuration(tmp_path: Path) -> None:
    require_prometheus()
    places = Places(tmp_path, {})
    make_tokens(places)
    paths = places.lay_out("alertmanager")
    done = _run(program("amtool"), "check-config", paths["/etc/sickbay/alertmanager.yml"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "receivers" in done.stdout


def test_tokens_script_is_plain_shell() -> None:
    shell = shutil.which("dash") or "/bin/sh"
    assert _run(shell, "-n", str(COMPOSE / "tokens.sh")).returncode == 0


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
