"""The configuration: defaults, strictness, one line per problem with file, line, path and remedy."""

# ruff: noqa: E501 - the table of problems reads as one line per problem, as its users see it
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.findings import Mode, Repair
from sickbay.config import ConfigError, Role, load_config, parse_config
from sickbay.config.docs import render
from sickbay.config.source import parse_yaml

ROOT = Path(__file__).parents[2]
MINIMAL = "cluster: alpha\nscheduler: {kind: slurm}\nmetrics: {source: scrape}\n"

# Every key of the contract, with its default where it has one.
WHOLE = """\
cluster: alpha
mode: auto
store: {url: "sqlite:///var/lib/sickbay/sickbay.db"}
lease: {duration_seconds: 15}
scheduler:
  kind: slurm
  slurm: {transport: cli, env: {}, timeout_seconds: 10, read_rpc_per_second: 2, action_rpc_per_second: 20}
  kubernetes: {kubeconfig: null, context: null, namespace: sickbay, max_qps: 10}
metrics:
  source: scrape
  scrape: {interval_seconds: 15, targets: ["n01:9400", "n02:9400"]}
  prometheus: {url: "http://127.0.0.1:9090", timeout_seconds: 10}
interval_seconds: 15
settle_seconds: 2
pools:
  - name: gpu
    match: {partition: gpu}
    mode: auto
    budget: {max_in_flight: 2, max_unavailable_percent: 10}
    rate: {max_cordons: 3, window_seconds: 600}
domains:
  nodes: {rack1: "n[01-08]", rack2: "n[09-16]"}
  burst: {min_nodes: 3, pool_percent: 2, window_seconds: 300}
rules: {directories: [], disabled: [], modes: {gpu-straggler: observe}}
jobs:
  checkpoint: {signal: null, target: batch, opt_in_comment: "sickbay:ckpt", grace_seconds: 120}
  requeue: true
  exclude_node: true
  max_requeues: 3
repair: {enabled: true, ladder: [reset_gpu, reboot], max_attempts: 2, commands: {}}
verify: {command: null, timeout_seconds: 1800, probation_seconds: 3600}
handover: {webhook_url: null}
notify: {webhook_url: null}
prices: {currency: USD, gpu_hour: {default: 2.5}, power_kwh: 0.12, pue: 1.3}
slo: {availability: 0.95, window_days: 30}
agent:
  node: null
  controller: "http://127.0.0.1:8470"
  token_file: null
  kernel_log: /dev/kmsg
  boot_id_file: /proc/sys/kernel/random/boot_id
  sources: [dcgm, nvidia-smi, nic]
  dcgm_url: "http://127.0.0.1:9400/metrics"
  listen: "0.0.0.0:9870"
  spool_dir: /var/lib/sickbay/spool
http: {listen: "127.0.0.1:8470", allow_anonymous_loopback: false, agent_secret_file: null, tokens: []}
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "sickbay.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def problems(path: Path, purpose: str = "serve") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(path, purpose)
    text = str(caught.value)
    assert text.splitlines() == list(caught.value.lines)
    return [line.replace(f"{path}:", "") for line in caught.value.lines]


class TestDefaults:
    def test_the_whole_contract_is_accepted(self, write):
        config = load_config(write(WHOLE))
        assert config.mode is Mode.AUTO
        assert config.pools[0].match.partition == "gpu"
        assert [target.node for target in config.metrics.scrape.targets] == ["n01", "n02"]
        assert config.metrics.scrape.targets[0].url == "http://n01:9400/metrics"

    def test_what_is_left_out_has_the_contracts_value(self, write):
        # The same file without its defaults means the same.
        short = """\
cluster: alpha
mode: auto
scheduler: {}
metrics: {scrape: {targets: ["n01:9400", "n02:9400"]}}
pools: [{name: gpu, match: {partition: gpu}, mode: auto}]
domains: {nodes: {rack1: "n[01-08]", rack2: "n[09-16]"}}
rules: {modes: {gpu-straggler: observe}}
"""
        assert load_config(write(short)).model_dump() == load_config(write(WHOLE)).model_dump()

    def test_minimal_file_observes_and_has_no_pools(self, write):
        config = load_config(write(MINIMAL))
        assert config.mode is Mode.OBSERVE
        assert config.pools == ()
        assert config.domains.nodes == {}
        assert config.metrics.scrape.targets == ()
        assert config.repair.ladder == (Repair.RESET_GPU, Repair.REBOOT)

    def test_nothing_changes_after_loading(self, write):
        config = load_config(write(MINIMAL))
        with pytest.raises(ValidationError, match="frozen"):
            config.mode = Mode.AUTO

    def test_plain_data_is_checked_alike(self):
        config = parse_config({"cluster": "a", "scheduler": {"kind": "simulated"}, "metrics": {}})
        assert config.scheduler.kind == "simulated"
        with pytest.raises(ConfigError, match=r"demo:1: mod: unknown key; did you mean mode\?"):
            parse_config({"cluster": "a", "scheduler": {}, "metrics": {}, "mod": "auto"}, "demo")

    def test_example_is_valid(self):
        config = load_config(ROOT / "docs/examples/slurm-observe.yaml")
        assert config.mode is Mode.OBSERVE
        assert {token.role for token in config.http.tokens} == {Role.OPERATOR, Role.VIEWER, Role.ALERTMANAGER}

    def test_page_is_current(self):
        page = (ROOT / "docs/configuration.md").read_text()
        assert page == render(), "run: python -m sickbay.config.docs > docs/configuration.md"

    def test_page_explains_every_key(self):
        assert "|  |" not in render()


class TestAgentFile:
    def test_agent_section_alone_is_enough_for_an_agent(self, write):
        path = write("agent: {node: n01, kernel_log: /var/log/kern.log}\n")
        config = load_config(path, "agent")
        assert config.agent.node == "n01"
        assert config.scheduler is None
        assert config.path == path

    def test_but_not_for_the_controller(self, write):
        lines = problems(write("agent: {node: n01}\n"))
        assert lines == [
            "1: cluster: is missing; add it",
            "1: scheduler: is missing; add it",
            "1: metrics: is missing; add it",
        ]

    def test_the_controllers_file_serves_an_agent_too(self, write):
        assert load_config(write(WHOLE), "agent").cluster == "alpha"

    def test_it_is_as_strict(self, write):
        assert problems(write("agent: {nod: n01}\n"), "agent") == [
            "1: agent.nod: unknown key; did you mean node?"
        ]


class TestPaths:
    def test_relative_paths_start_at_the_files_folder(self, write):
        path = write(MINIMAL + "agent: {spool_dir: spool}\nstore: {url: 'sqlite:///./x.db'}\n")
        config = load_config(path)
        assert config.agent.spool_dir == path.parent / "spool"
        assert config.store.url == f"sqlite:///{path.parent}/x.db"

    @pytest.mark.parametrize("slashes", ["///", "////"])
    def test_sqlite_path_is_absolute_with_three_slashes_and_with_four(self, write, slashes):
        config = load_config(write(MINIMAL + f"store: {{url: 'sqlite:{slashes}var/x.db'}}\n"))
        assert config.store.url == "sqlite:////var/x.db"


# (added to the minimal file, expected: the line number counts from its first line)
PROBLEMS = [
    ("mdoe: auto", "4: mdoe: unknown key; did you mean mode?"),
    ("max_in_flight: 3", "4: max_in_flight: unknown key here; it belongs at pools[].budget.max_in_flight"),
    ("lease: {duration: 3}", "4: lease.duration: unknown key; did you mean duration_seconds?"),
    ("lease: {zz: 3}", "4: lease.zz: unknown key; known here: duration_seconds"),
    ("mode: auot", "4: mode: is the text 'auot', not one of observe, approve, auto; did you mean auto?"),
    ("mode: null", "4: mode: is empty; write one of observe, approve, auto"),
    ("store:", "4: store: is empty, but must be a mapping of keys; write a value or remove the key"),
    ("pools: {}", "4: pools: is a mapping, but must be a list; write [ ... ] or one '- ' per line"),
    ("interval_seconds: '15'", "4: interval_seconds: is the text '15', but must be a number; write it without quotes and units"),
    ("interval_seconds: 10m", "4: interval_seconds: is the text '10m', but must be a number; write it without quotes and units"),
    ("interval_seconds: true", "4: interval_seconds: is true, but must be a number"),
    ("interval_seconds: 0", "4: interval_seconds: is 0; it must be more than 0"),
    ("interval_seconds: .inf", "4: interval_seconds: is the text '.inf', but must be a number; write it without quotes and units"),
    ("jobs: {requeue: yes}", "4: jobs.requeue: is the text 'yes', but must be true or false"),
    ("jobs: {max_requeues: 1.5}", "4: jobs.max_requeues: is 1.5, but must be a whole number"),
    ("jobs: {checkpoint: {signal: KILL}}", "4: jobs.checkpoint.signal: KILL cannot be caught by a job, so it is no checkpoint notice; use USR1 or TERM"),
    ("jobs: {checkpoint: {signal: 10}}", "4: jobs.checkpoint.signal: 10 is no signal name; write a name such as USR1"),
    ("store: {url: 'mysql://x'}", "4: store.url: is no store this service knows; write sqlite:///path/to/file.db or postgresql+psycopg://user@host/database"),
    ("store: {url: 'sqlite://'}", "4: store.url: is no store this service knows; write sqlite:///path/to/file.db or postgresql+psycopg://user@host/database"),
    ("store: {url: 'sqlite:///:memory:'}", "4: store.url: names no file, and a ledger in memory is lost at a restart; write sqlite:///path/to/file.db or postgresql+psycopg://user@host/database"),
    ("verify: {command: /opt/check.sh --fast}", '4: verify.command: is text; write it as a list: ["/opt/check.sh", "--fast"] (no shell runs it)'),
    ("verify: {command: []}", "4: verify.command: is an empty command; write the program and its arguments, or null"),
    ("repair: {ladder: [reboot, reset_gpu]}", "4: repair.ladder: is out of order or repeats a step; write the gentlest first: reset_gpu, reboot, power_cycle, hand_over"),
    ("repair: {ladder: [rebot]}", "4: repair.ladder: 'rebot' is no step of the ladder; write some of reset_gpu, reboot, power_cycle, hand_over"),
    ("repair: {ladder: [power_cycle]}", "4: repair: ladder has power_cycle, which no scheduler can do; add commands.power_cycle or drop the step"),
    ("repair: {commands: {rebot: [a]}}", "4: repair.commands.rebot: is the text 'rebot', not one of reset_gpu, reboot, power_cycle; did you mean reboot?"),
    ("notify: {webhook_url: 'ftp://user:pw@x'}", "4: notify.webhook_url: is no http or https URL; write a whole URL such as http://host:port"),
    ("http: {listen: ':8470'}", "4: http.listen: ':8470' is no listen address; write host:port, such as 127.0.0.1:8470 (0.0.0.0:8470 for every address)"),
    ("http: {listen: '::1:8470'}", "4: http.listen: '::1:8470' is no listen address; put an IPv6 address in brackets: [::1]:8470"),
    ("http: {listen: '127.0.0.1:99999'}", "4: http.listen: '127.0.0.1:99999' is no listen address; write host:port, such as 127.0.0.1:8470 (0.0.0.0:8470 for every address)"),
    ("http: {listen: '0.0.0.0:8470', allow_anonymous_loopback: true}", "4: http.allow_anonymous_loopback: is true, but http.listen (0.0.0.0:8470) can be reached from other machines; listen on 127.0.0.1, or set it to false and use tokens"),
    ("http: {tokens: [{name: a, role: admin, token_file: /t}]}", "4: http.tokens[0].role: is the text 'admin'; write one of viewer, agent, alertmanager, operator"),
    ("http: {tokens: [{name: a_b, role: agent, token_file: /t}, {name: a_b, role: viewer, token_file: /t}]}", "4: http.tokens[1].name: 'a_b' is also the name of tokens[0]; every token needs its own"),
    ("http: {tokens: [{name: a_, role: agent, token_file: /t}]}", "4: http.tokens[0].name: 'a_' is no host name; a token with role agent is named after the one node it speaks for"),
    ("pools: [{name: a, match: {}}]", "4: pools[0].match: has nothing; write exactly one of partition, label, nodes"),
    ("pools: [{name: a, match: {partition: p, nodes: n1}}]", "4: pools[0].match: has partition and nodes; write exactly one of partition, label, nodes"),
    ("pools:\n  - {name: a, match: {partition: p}}\n  - {name: a, match: {partition: q}}", "6: pools[1].name: 'a' is also the name of pools[0]; every pool needs its own"),
    ("pools:\n  - {name: a, match: {partition: p}}\n  - {name: b, match: {partition: p}}", "6: pools[1].match: is the same as that of pools[0]; the first one gets every node, remove one"),
    ("pools: [{name: a, match: {label: 'x=y'}}]", "4: pools[0].match.label: a slurm cluster has no labels; match by partition or by nodes"),
    ("pools: [{name: a, match: {label: 'x'}}]", "4: pools[0].match.label: 'x' is not allowed here; write one \"key=value\""),
    ("pools: [{name: a, match: {partition: p}, budget: {max_unavailable_percent: 101}}]", "4: pools[0].budget.max_unavailable_percent: is 101; it must be at most 100"),
    ("rules: {modes: {Gpu_X: observe}}", "4: rules.modes.Gpu_X: 'Gpu_X' is not allowed here; a rule's id is lower-case letters, digits and '-'"),
    ("prices: {gpu_hour: {h100: 4}}", "4: prices.gpu_hour: has no price for other GPU types; add default"),
    ("slo: {availability: 95}", "4: slo.availability: is 95; it must be less than 1"),
    ("agent: {sources: [dcgm, ipmi]}", "4: agent.sources[1]: is the text 'ipmi'; write one of dcgm, nvml, nvidia-smi, nic"),
    ("agent: {node: 'n[1-4]'}", "4: agent.node: 'n[1-4]' is no single host name; write one name, such as n01"),
    ("settle_seconds: 1\nsettle_seconds: 2", "5: settle_seconds: is given twice (first on line 4); keep one of them"),
    ("cluster: beta", "4: cluster: is given twice (first on line 1); keep one of them"),
]  # fmt: skip


class TestProblems:
    @pytest.mark.parametrize(("text", "expected"), PROBLEMS, ids=[text[:50] for text, _ in PROBLEMS])
    def test_one_line_with_line_path_and_remedy(self, write, text, expected):
        assert problems(write(MINIMAL + text + "\n")) == [expected]

    @pytest.mark.parametrize(
        ("hostlist", "word"),
        [
            ("n[1-100000000]", "more than"),
            ("@gpu", "no name"),
            ("n*", "no name"),
            ("n[1-", "bracket"),
            ("n[4-1]", "backwards"),
            ("n1!n2", "no name"),
        ],
    )
    def test_hostlists_are_bounded_and_have_no_groups(self, write, hostlist, word):
        path = write(MINIMAL + f"domains: {{nodes: {{r: '{hostlist}'}}}}\n")
        (line,) = problems(path)
        assert line.startswith("4: domains.nodes.r: ")
        assert word in line
        assert "n[01-16]" in line

    @pytest.mark.parametrize("target", ["n01", "n[1-4]:9400", "n01:x", "n01:0", ":9400", "n 1:9400"])
    def test_targets_name_one_node_and_port(self, write, target):
        path = write(f"cluster: a\nscheduler: {{}}\nmetrics: {{scrape: {{targets: ['{target}']}}}}\n")
        (line,) = problems(path)
        assert line.startswith("3: metrics.scrape.targets[0]")

    def test_many_targets_belong_to_prometheus(self, write):
        targets = ", ".join(f"'n{number}:9400'" for number in range(301))
        text = f"cluster: a\nscheduler: {{}}\nmetrics: {{source: scrape, scrape: {{targets: [{targets}]}}}}\n"
        (line,) = problems(write(text))
        assert line == (
            "3: metrics.scrape.targets: has 301 targets, and direct scraping is made for 300 at most; "
            "let Prometheus scrape them and set metrics.source: prometheus"
        )
        load_config(write(text.replace("source: scrape", "source: prometheus")))

    def test_a_kind_left_out_is_not_guessed_against_the_file(self, write):
        text = (
            "cluster: a\nscheduler: {kubernetes: {context: x}}\nmetrics: {prometheus: {timeout_seconds: 3}}\n"
        )
        assert problems(write(text)) == [
            "2: scheduler: describes kubernetes, but kind is missing and slurm is its default; add kind",
            "3: metrics: describes prometheus, but source is missing and scrape is its default; add source",
        ]

    def test_rest_needs_a_url(self, write):
        text = "cluster: a\nscheduler: {slurm: {transport: rest}}\nmetrics: {}\n"
        assert problems(write(text)) == [
            "2: scheduler.slurm: transport is rest, but url is missing; write slurmrestd's address"
        ]

    def test_every_problem_is_told_at_once_in_the_order_of_the_file(self, write):
        lines = problems(write("zz: 1\ncluster: 5\nmode: x\nlease: []\nscheduler: {}\nmetrics: {}\n"))
        assert [line.split(":")[0] for line in lines] == ["1", "2", "3", "4"]

    def test_secrets_in_urls_are_not_repeated(self, write):
        text = (
            MINIMAL
            + "handover: {webhook_url: 'htp://user:hunter2@x'}\nstore: {url: 'mysql://a:hunter2@b/c'}\n"
        )
        assert "hunter2" not in "".join(problems(write(text)))


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", "1: the file is empty; see docs/configuration.md for what to write"),
            ("# nothing\n", "1: the file is empty; see docs/configuration.md for what to write"),
            ("- a\n", "1: is a list, not a mapping of keys; see docs/configuration.md"),
            ("hello\n", "1: is a single value, not a mapping of keys; see docs/configuration.md"),
            (b"\xff\xfe\x00", "1: not a UTF-8 text file; is this the right file?"),
            (b"a: b\n\x00", "1: not a YAML text file; is this the right file?"),
            ("[" * 5000, "1: nested too deeply; is this the right file?"),
            ("a: &x [*x]\n", "1: too much in one file; is this the right file?"),
            ("[a]: 1\n", "1: a key is a list or a mapping; write plain keys"),
        ],
    )
    def test_what_is_no_configuration(self, write, text, expected):
        assert problems(write(text)) == [expected]

    def test_syntax_errors_have_a_line(self, write):
        (line,) = problems(write("a: 1\nb: [1\nc: 2\n"))
        assert line.startswith("3: not valid YAML: ")

    def test_python_tags_are_refused(self, write):
        (line,) = problems(write("cluster: !!python/object/apply:os.system [x]\n"))
        assert "write plain values without tags" in line

    def test_anchors_cannot_grow_without_bound(self, write):
        rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
        (line,) = problems(write("\n".join(rows)))
        assert "too much in one file" in line

    def test_anchors_are_fine(self, write):
        text = MINIMAL + (
            "pools:\n  - {name: a, match: {partition: a}, budget: &b {max_in_flight: 7}}\n"
            "  - {name: b, match: {partition: b}, budget: *b}\n"
        )
        assert load_config(write(text)).pools[1].budget.max_in_flight == 7

    def test_missing_and_folder(self, tmp_path):
        with pytest.raises(ConfigError, match="no such file; check the path given with --config"):
            load_config(tmp_path / "nothing.yaml")
        with pytest.raises(ConfigError, match="is a folder"):
            load_config(tmp_path)

    def test_too_large(self, write):
        with pytest.raises(ConfigError, match="larger than"):
            load_config(write("#" * 1_100_000))

    @pytest.mark.parametrize("text", ["no", "on", "12:30", "2026-01-01", "0x10", "1_000"])
    def test_yaml_11_surprises_stay_text(self, text):
        assert parse_yaml(f"a: {text}\n", "x").value == {"a": text}

    @given(st.text(max_size=200))
    def test_any_text_is_a_value_or_a_config_error(self, text):
        try:
            source = parse_yaml(text, "x")
        except ConfigError as error:
            assert all(line.startswith("x:") for line in error.lines)  # noqa: PT017 - both ends are right
        else:
            assert source.line_of(()) >= 1

    @given(st.dictionaries(st.text(max_size=8), st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ), max_size=4))  # fmt: skip
    def test_any_data_is_refused_in_lines(self, data):
        with pytest.raises(ConfigError) as caught:
            parse_config({"scheduler": data, "zz": data})
        assert all(line.startswith("configuration:1: ") for line in caught.value.lines)


class TestWarnings:
    def test_world_readable_secret(self, write, tmp_path):
        secret = tmp_path / "secret"
        secret.write_text("x" * 32)
        path = write(MINIMAL + f"http: {{agent_secret_file: {secret}, tokens: [{{name: a, role: viewer, token_file: {secret}}}]}}\n")  # fmt: skip
        secret.chmod(0o644)
        warnings = load_config(path).warnings
        assert [line.split(": ")[1] for line in warnings] == [
            "http.tokens[0].token_file",
            "http.agent_secret_file",
        ]
        assert all(line.endswith(f"chmod o-r {secret}") for line in warnings)
        secret.chmod(0o600)
        assert load_config(path).warnings == ()

    def test_missing_secret(self, write):
        path = write(MINIMAL + "http: {tokens: [{name: a, role: viewer, token_file: gone}]}\n")
        (line,) = load_config(path).warnings
        assert line == (
            f"{path}:4: http.tokens[0].token_file: {path.parent}/gone does not exist; "
            "create it before the service starts"
        )

    def test_lease_shorter_than_a_call(self, write):
        config = load_config(
            write(MINIMAL + "lease: {duration_seconds: 5}\nhttp: {allow_anonymous_loopback: true}\n")
        )
        (line,) = config.warnings
        assert "4: lease.duration_seconds: 5 s is not longer than" in line

    def test_pools_that_share_nodes(self, write):
        text = MINIMAL + (
            "http: {allow_anonymous_loopback: true}\n"
            "pools:\n  - {name: a, match: {nodes: 'n[1-4]'}}\n  - {name: b, match: {nodes: 'n[4-8]'}}\n"
        )
        (line,) = load_config(write(text)).warnings
        assert "7: pools[1].match.nodes: n4 is in pool 'a' already" in line

    def test_nobody_can_use_the_api(self, write):
        (line,) = load_config(write(MINIMAL)).warnings
        assert "http: has no tokens" in line
