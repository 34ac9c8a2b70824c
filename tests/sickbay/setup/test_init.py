"""``sickbay init``: whatever is found or answered, the file is valid, observes, and says what is missing."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import typer
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from fleet.findings import Mode
from fleet.observations import Problem, ProblemReason, Reading
from fleet.scheduler import NodeRecord, NodeState
from sickbay import cli_init
from sickbay.config import load_config, parse_config
from sickbay.setup.detect import look
from sickbay.setup.write import Answers, make_secrets, render


def node(name: str, *partitions: str, gpus: int | None = 8, **labels: str) -> NodeRecord:
    return NodeRecord(
        name=name,
        state=NodeState.IDLE,
        base="idle",
        partitions=partitions,
        gpus_total=gpus,
        labels={key.replace("__", "/"): value for key, value in labels.items()},
    )


def answer(*nodes: NodeRecord) -> Reading:
    return Reading(nodes)


SILENT = Reading((Problem(source="x", reason=ProblemReason.TOOL_MISSING, message="no such tool"),), ok=False)


def test_the_partitions_that_hold_the_gpus_and_as_little_else_as_can_be() -> None:
    nodes = (
        node("n1", "all", "gpu", "debug"),
        node("n2", "all", "gpu"),
        node("n3", "all", "big"),
        node("c1", "all", "cpu", gpus=0),
    )
    seen = look({"slurm": lambda: answer(*nodes)})
    assert (seen.kind, seen.nodes, seen.gpu_nodes) == ("slurm", 4, ("n1", "n2", "n3"))
    assert seen.partitions == ("gpu", "big")


def test_the_first_that_answers_with_a_node() -> None:
    seen = look({"slurm": lambda: SILENT, "kubernetes": lambda: answer(node("a", nvidia=""))})
    assert (seen.kind, dict(seen.told)) == ("kubernetes", {"slurm": "no such tool"})
    nobody = look({"slurm": lambda: SILENT, "kubernetes": lambda: Reading(())})
    assert nobody.kind is None
    assert nobody.told["kubernetes"] == "answered, and has no node"


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=20)


@given(
    cluster=st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True),
    partitions=st.lists(TEXT.filter(lambda t: t.strip() == t and t.isprintable()), max_size=4, unique=True),
    nodes=st.lists(st.from_regex(r"n[0-9]{1,4}", fullmatch=True), max_size=5, unique=True),
    prometheus=st.sampled_from([None, "http://prometheus.example:9090", "https://thanos.example/base"]),
    secrets=st.sampled_from([None, "secrets"]),
)
def test_any_answers_make_yaml_that_says_just_that(
    cluster: str, partitions: list[str], nodes: list[str], prometheus: str | None, secrets: str | None
) -> None:
    text = render(
        Answers(
            cluster=cluster,
            kind="slurm",
            store="sqlite:///./x.db",
            partitions=tuple(partitions),
            gpu_nodes=tuple(nodes),
            prometheus=prometheus,
            secrets=secrets,
        )
    )
    data = yaml.safe_load(text)
    assert data["mode"] == "observe"
    assert [pool["match"]["partition"] for pool in data.get("pools", [])] == partitions
    if prometheus is None:
        assert data["metrics"]["scrape"]["targets"] == [f"{name}:9400" for name in nodes]
    assert len(parse_config(data).pools) == len(partitions)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(cli_init, "READERS", {"slurm": lambda: SILENT, "kubernetes": lambda: SILENT})

    def call(*arguments: str, answers: str | None = None) -> Result:
        app = typer.Typer()
        app.callback()(lambda: None)
        cli_init.register(app)
        return CliRunner().invoke(app, ["init", *arguments], input=answers)

    return call


def test_where_nothing_is_found_it_says_which_lines_to_edit(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    result = run("--yes", "--cluster", "alpha")
    assert result.exit_code == 0, result.output
    config = load_config(tmp_path / "sickbay.yaml")
    assert (config.cluster, config.mode, config.scheduler.kind) == ("alpha", Mode.OBSERVE, "slurm")
    for line in (line for line in result.stdout.splitlines() if line.startswith("  line ")):
        number = int(line.split()[1].rstrip(":"))
        assert "# EDIT" in (tmp_path / "sickbay.yaml").read_text().splitlines()[number - 1]
    assert "to edit first" in result.stdout
    assert "sickbay doctor --config sickbay.yaml" in result.stdout


def test_a_slurm_cluster_is_written_down_whole(run, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(cli_init, "READERS", {"slurm": lambda: answer(node("n1", "gpu"), node("n2", "gpu"))})
    result = run("--yes", "--scheduler", "slurm", "--port", "9401")
    assert result.exit_code == 0, result.output
    config = load_config(tmp_path / "sickbay.yaml")
    assert [target.url for target in config.metrics.scrape.targets] == [
        "http://n1:9401/metrics",
        "http://n2:9401/metrics",
    ]
    assert [pool.match.partition for pool in config.pools] == ["gpu"]
    assert "to edit first" not in result.stdout


def test_a_labelled_kubernetes_cluster_gets_its_pool(run, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    nodes = (node("a", **{"nvidia.com__gpu.present": "true"}), node("b", gpus=0))
    monkeypatch.setattr(cli_init, "READERS", {"slurm": lambda: SILENT, "kubernetes": lambda: answer(*nodes)})
    assert run("--yes", "--prometheus", "http://p.example:9090").exit_code == 0
    config = load_config(tmp_path / "sickbay.yaml")
    assert config.scheduler.kind == "kubernetes"
    assert [pool.match.label for pool in config.pools] == ["nvidia.com/gpu.present=true"]
    assert config.metrics.source == "prometheus"


def test_too_many_nodes_to_scrape(run, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    many = [node(f"n{number}", "gpu") for number in range(301)]
    monkeypatch.setattr(cli_init, "READERS", {"slurm": lambda: answer(*many)})
    result = run("--yes", "--scheduler", "slurm")
    assert "301 are too many; use Prometheus" in result.stdout
    assert load_config(tmp_path / "sickbay.yaml").metrics.scrape.targets == ()


def test_what_is_there_stays(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "sickbay.yaml").write_text("mine")
    result = run("--yes")
    assert result.exit_code == 2
    assert "give --force" in result.stderr
    assert (tmp_path / "sickbay.yaml").read_text() == "mine"
    assert run("--yes", "--force").exit_code == 0


def test_bad_answers_are_one_line_and_leave_nothing(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    result = run("--yes", "--prometheus", "not a url", "--no-secrets")
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []
    assert run("--yes", "--out", "missing/x.yaml").exit_code == 2


def test_secrets_are_their_owners_and_never_replaced(tmp_path: Path) -> None:
    made = make_secrets(tmp_path / "secrets")
    assert len(made) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}
    assert len({path.read_text() for path in made}) == 4
    before = {path: path.read_text() for path in made}
    assert make_secrets(tmp_path / "secrets") == []
    assert {path: path.read_text() for path in made} == before


def test_questions_are_asked_on_a_terminal(run, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("sickbay.cli_init._is_a_person", lambda: True)
    result = run(answers="kubernetes\nbeta\nhttp://p.example:9090\nn\n")
    assert result.exit_code == 0, result.output
    config = load_config(tmp_path / "sickbay.yaml")
    assert (config.cluster, config.scheduler.kind, config.metrics.source) == (
        "beta",
        "kubernetes",
        "prometheus",
    )
    assert config.http.tokens == ()
