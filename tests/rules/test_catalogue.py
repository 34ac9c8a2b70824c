"""Loading rule files: what is shipped, what a site adds, and every mistake with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.findings import ClearOn, Mode, Response
from fleet.observations import Event, EventKind
from rules.catalogue import CatalogueError, check_directory, load_catalogue
from rules.events import EventContext, weigh
from rules.model import KINDS, FatalWord
from rules.rulefile import parse_rule_file

ROOT = Path(__file__).parents[2]

GOOD = """\
rules:
  - id: site-rule
    kind: nvlink
    severity: warning
    response: notify
    repair: none
    clear_on: operator
    summary: A summary
    why: A reason
    on: [{event: sxid, codes: [20009]}]
"""


def write(directory: Path, text: str, name: str = "site.yaml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def test_shipped_rules_are_complete() -> None:
    catalogue = load_catalogue()
    assert len(catalogue.by_id) == len(catalogue.rules) == 40
    assert len(catalogue.metric_rules) == 11
    for rule in catalogue.rules:
        assert rule.kind in KINDS
        assert rule.mode is Mode.AUTO, "all shipped rules are layer 0"
        assert rule.compiles is (rule.when is not None) is not bool(rule.on)
        assert rule.runbook == f"docs/runbooks/{rule.id}.md"
        page = (ROOT / rule.runbook).read_text(encoding="utf-8")
        for heading in (
            "Symptom",
            "What it means",
            "What it does not mean",
            "What sickbay does",
            "What you do",
        ):
            assert f"## {heading}\n" in page, (rule.id, heading)
        assert f"response `{rule.response}`, repair `{rule.repair}`" in " ".join(page.split())


def test_every_runbook_belongs_to_a_rule() -> None:
    pages = {path.stem for path in (ROOT / "docs/runbooks").glob("*.md")}
    assert pages == set(load_catalogue().by_id)


def test_a_site_adds_a_rule(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    catalogue = load_catalogue([tmp_path])
    assert catalogue.rules[0].id == "site-rule"
    assert catalogue.rules[0].origin == f"{tmp_path / 'site.yaml'}:2"
    event = Event(kind=EventKind.SXID, node="n01", time=1.0, code=20009, fatal=False, pci="0000:06:00.0")
    finding = weigh(event, EventContext(node="n01"), catalogue).finding
    assert finding is not None
    assert finding.rule == "site-rule"


def test_a_site_replaces_a_shipped_rule_whole(tmp_path: Path) -> None:
    text = GOOD.replace("site-rule", "gpu-needs-reset").replace(
        "{event: sxid, codes: [20009]}", "{event: xid}"
    )
    write(tmp_path, text)
    catalogue = load_catalogue([tmp_path])
    assert catalogue.xid_policy(119).response is Response.NOTIFY
    assert len(catalogue.rules) == 40


def test_a_site_moves_a_code(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("{event: sxid, codes: [20009]}", "{event: xid, codes: [31, 999]}"))
    catalogue = load_catalogue([tmp_path])
    assert catalogue.xid_policy(31).rule == "site-rule"
    assert catalogue.xid_policy(31).why == "A reason"
    assert catalogue.xid_policy(13).rule == "gpu-app-fault"
    unknown = catalogue.xid_policy(999)
    assert (unknown.rule, unknown.known) == ("site-rule", False)


def test_a_moved_variant_leaves_the_others(tmp_path: Path) -> None:
    write(
        tmp_path, GOOD.replace("{event: sxid, codes: [20009]}", "{event: xid, codes: [145], when: [fatal]}")
    )
    catalogue = load_catalogue([tmp_path])
    assert catalogue.xid_policy(145, "fatal").rule == "site-rule"
    assert catalogue.xid_policy(145, "nonfatal").rule == "event-observed"
    assert catalogue.xid_policy(144, "fatal").rule == "gpu-nvlink-fatal"


def test_the_later_directory_wins(tmp_path: Path) -> None:
    for name, summary in (("a", "first"), ("b", "second")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, GOOD.replace("A summary", summary))
    catalogue = load_catalogue([tmp_path / "a", tmp_path / "b"])
    assert catalogue.by_id["site-rule"].summary == "second"


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("    severity: warning\n", "", 2, "a rule lacks severity"),
        ("severity: warning", "severity: grave", 4, "must be one of info, warning, critical, not 'grave'"),
        ("severity: warning", "severity: [warning]", 4, "severity must be one of"),
        ("kind: nvlink", "kind: gremlins", 3, "kind must be one of"),
        ("id: site-rule", "id: Site Rule", 2, "id must be 1 to 64 of a-z, 0-9 and -"),
        ("    why: A reason\n", "    why: A reason\n    wyh: typo\n", 10, "a rule has no key 'wyh'; known:"),
        ("    why: A reason\n", "    why: A reason\n    why: two\n", 10, "key why is given twice"),
        ("why: A reason", "why: ''", 9, "why must be text"),
        ("response: notify", "response: drain_now", 5, "response must be one of observe"),
        ("repair: none", "repair: reboot", 2, "response notify never repairs"),
        ("clear_on: operator", "clear_on: below_threshold_for", 2, "never ends by silence"),
        ("clear_on: operator", "clear_on: closing_event", 2, "closing_event needs closed_by"),
        ("[{event: sxid, codes: [20009]}]", "[]", 10, "on must be a list with at least one entry"),
        ("[{event: sxid, codes: [20009]}]", "all", 10, "on must be a list"),
        ("event: sxid, ", "", 10, "an entry of on lacks event"),
        ("event: sxid", "event: sneeze", 10, "event must be one of xid"),
        ("codes: [20009]", "codes: [-1]", 10, "a code must be a whole number from 0"),
        ("codes: [20009]", "codes: ['79']", 10, "a code must be a whole number"),
        ("codes: [20009]", "codes: [99999999999999]", 10, "a code must be a whole number"),
        ("codes: [20009]", "when: [fatal]", 10, "when needs codes beside it"),
        ("codes: [20009]", "codes: [1], when: [perhaps]", 10, "when must be one of"),
        ("codes: [20009]", "fatal: maybe", 10, "fatal must be one of yes, no, unknown"),
        ("codes: [20009]", "located: 1", 10, "located must be true or false"),
        (
            "    why: A reason\n",
            "    why: A reason\n    escalate: {rule: x}\n",
            10,
            "escalate lacks distinct_jobs",
        ),
        ("    why: A reason\n", "    why: A reason\n   bad: [\n", 10, "no YAML: "),
        ("rules:", "rulez:", 1, "a rule file has no key 'rulez'; known: rules"),
        ("rules:\n", "- rules:\n", 1, "a rule file must be a mapping"),
    ],
)
def test_every_mistake_names_its_line(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    _, problems = check_directory(tmp_path)
    assert any((p.file, p.line) == (str(path), line) and words in p.message for p in problems), [
        str(problem) for problem in problems
    ]
    with pytest.raises(CatalogueError) as caught:
        load_catalogue([tmp_path])
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_listed_and_good_rules_kept() -> None:
    second = (
        GOOD.replace("rules:\n", "").replace("site-rule", "other").replace("severity: warning", "severity: x")
    )
    rules, problems = parse_rule_file((GOOD + second).encode(), "f.yaml")
    assert [rule.id for rule in rules] == ["site-rule"]
    assert [problem.line for problem in problems] == [13]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"rules: \xff\n", "f.yaml:1: not UTF-8"),
        (b"[" * 20000, "f.yaml: nested too deeply"),
        (b"#" * (1 << 20) + b"\n", "larger than"),
        (b"a: 1\n---\nb: 2\n", "f.yaml:2: no YAML"),
        (b"rules: \x01\n", "f.yaml: no YAML"),
        (b"rules: *nowhere\n", "f.yaml:1: no YAML"),
    ],
)
def test_files_that_are_no_rule_files(data: bytes, words: str) -> None:
    rules, problems = parse_rule_file(data, "f.yaml")
    assert rules == []
    assert words in str(problems[0])


@given(st.one_of(st.binary(max_size=200), st.text(alphabet="rules: -[]{}\n\t#&*!|>'\"id", max_size=80)))
def test_any_file_is_answered(content: bytes | str) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    rules, problems = parse_rule_file(data, "f.yaml")
    assert rules == []
    assert problems
    assert all("\n" not in str(problem) for problem in problems)


def test_the_same_id_twice_names_both_places(tmp_path: Path) -> None:
    first = write(tmp_path, GOOD, "a.yaml")
    write(tmp_path, GOOD, "b.yaml")
    _, problems = check_directory(tmp_path)
    assert [str(p) for p in problems] == [
        f"{tmp_path / 'b.yaml'}:2: rule site-rule is already defined at {first}:2; rename one"
    ]


def test_an_escalation_must_lead_somewhere(tmp_path: Path) -> None:
    extra = "    escalate: {rule: nowhere, distinct_jobs: 3, window_seconds: 60}\n"
    path = write(tmp_path, GOOD + extra)
    _, problems = check_directory(tmp_path)
    assert [str(p) for p in problems] == [
        f"{path}:2: rule site-rule escalates to 'nowhere', which is no rule"
    ]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="cannot be listed"):
        load_catalogue([tmp_path / "absent"])
    with pytest.raises(CatalogueError, match=r"holds no \.yaml rule file"):
        load_catalogue([tmp_path])


def test_an_unreadable_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    write(tmp_path, GOOD)
    rules, problems = check_directory(tmp_path)
    assert [rule.id for rule in rules] == ["site-rule"]
    assert "cannot be read" in str(problems[0])


def test_the_fatal_word() -> None:
    assert [FatalWord.of(value) for value in (True, False, None)] == ["yes", "no", "unknown"]


def test_findings_of_events_never_end_by_silence() -> None:
    events = [rule for rule in load_catalogue().rules if rule.on]
    assert events
    assert all(rule.clear_on is not ClearOn.BELOW_THRESHOLD_FOR for rule in events)
