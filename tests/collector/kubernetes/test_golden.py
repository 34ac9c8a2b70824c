"""Captured inputs, whole: each record with each of its fields, in order.

``expected.NAME.jsonl`` stands beside ``NAME`` in the form that ``sickbay collect kubernetes`` prints. Shapes:
Kubernetes API reference (core v1, resource.k8s.io), labels of NVIDIA's gpu-feature-discovery, KEP-4680.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.encode import to_dict
from collector.kubernetes.reader import read_captured
from fleet.observations import ProblemReason

DATA = Path(__file__).parents[2] / "data" / "kubernetes" / "golden"
NOW = 1770435000.0  # 2026-02-07T03:30:00Z
INPUTS = sorted(path.name for path in DATA.iterdir() if not path.name.startswith("expected."))

UNREADABLE, DENIED = ProblemReason.UNREADABLE, ProblemReason.PERMISSION_DENIED
UNREACHABLE, TIMEOUT = ProblemReason.CONTROLLER_UNREACHABLE, ProblemReason.TIMEOUT
QUERY = ProblemReason.QUERY_ERROR


@pytest.mark.parametrize("name", INPUTS)
def test_the_whole_answer(name: str) -> None:
    reading = read_captured((DATA / name).read_bytes(), now=NOW)
    expected = (DATA / f"expected.{name}.jsonl").read_text().splitlines()

    assert [to_dict(record) for record in reading.records] == [json.loads(line) for line in expected]
    assert reading.ok


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        ("apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Node\nkind: List\n", UNREADABLE, "YAML"),
        ("---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", UNREADABLE, "YAML"),
        ("NAME   STATUS   ROLES    AGE\nw1     Ready    <none>   3d\n", UNREADABLE, "text for people"),
        ("NAMESPACE   NAME   READY\nx           a      1/1\n", UNREADABLE, "text for people"),
        ("Name:               w1\nRoles:              <none>\n", UNREADABLE, "text for people"),
        ("Error from server (Forbidden): nodes is forbidden: User x cannot list", DENIED, "nodes is"),
        ("error: You must be logged in to the server (Unauthorized)", DENIED, "logged in"),
        (
            "E0207 03:30:00.100000    1234 memcache.go:265] couldn't get current server API group list: EOF\n"
            "The connection to the server localhost:8080 was refused - did you specify the right host?\n",
            UNREACHABLE,
            "localhost:8080 was refused",
        ),
        ("Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout", UNREACHABLE, "10.0.0.1"),
        ("Unable to connect to the server: tls: failed to verify certificate", UNREACHABLE, "certificate"),
        ("Error from server (Timeout): the server was unable to return a response", TIMEOUT, "Timeout"),
        ('Error from server (NotFound): nodes "w9" not found', QUERY, "w9"),
        ('error: the server doesn\'t have a resource type "nodez"', QUERY, "nodez"),
        ("bash: kubectl: command not found", ProblemReason.TOOL_MISSING, "kubectl"),
        ("<html>502 Bad Gateway</html>", UNREADABLE, "502"),
        ("", UNREADABLE, "empty"),
        ('{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"cells":["w1"]}]}', UNREADABLE, "columns"),
        (
            '{"kind":"PartialObjectMetadataList","items":[{"metadata":{"name":"a"}}]}',
            UNREADABLE,
            "metadata alone",
        ),
        ('{"kind":"Status","status":"Failure","reason":"Timeout","code":504}', TIMEOUT, "Timeout"),
        ('{"kind":"Status","status":"Failure","message":"busy","code":503}', UNREACHABLE, "busy"),
        ('{"kind":"Status","status":"Failure","message":"no such thing","code":404}', QUERY, "no such"),
        ('{"kind":"Status","status":"Failure","reason":"Forbidden","message":"no"}', DENIED, "no"),
        ('{"kind":"Status","status":"Failure","code":410,"message":"old"}', QUERY, "list again"),
        ('{"kind":"ConfigMap","apiVersion":"v1"}', ProblemReason.UNRECOGNISED_VALUE, "ConfigMap"),
        (
            '{"kind":"Node","apiVersion":"longhorn.io/v1beta2","metadata":{"name":"w1"}}',
            ProblemReason.UNRECOGNISED_VALUE,
            "Node.longhorn.io",
        ),
        ('{"kind":"Node","metadata":{"name":"w1"', ProblemReason.TRUNCATED, "breaks off"),
        ('{"kind":"Node" "metadata":{}}', UNREADABLE, "damaged at character 15"),
    ],
)
def test_nothing_could_be_read_and_one_line_says_why(text: str, reason: ProblemReason, words: str) -> None:
    reading = read_captured(text.encode(), now=NOW)

    assert not reading.ok
    (problem,) = reading.problems
    assert len(reading.records) == 1
    assert (problem.reason, words in problem.message) == (reason, True), problem


@pytest.mark.parametrize(
    "text",
    [
        "No resources found\n",
        "No resources found in default namespace.",
        '{"kind":"List","apiVersion":"v1","items":[]}',
        'Warning: deprecated\n{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":null}',
    ],
)
def test_an_empty_answer_is_an_answer(text: str) -> None:
    reading = read_captured(text.encode(), now=NOW)

    assert (reading.ok, reading.records) == (True, ())


def test_a_redirect_of_powershell_is_read() -> None:
    text = '{"kind":"Node","metadata":{"name":"w1"}}'

    reading = read_captured(text.encode("utf-16"), now=NOW)

    assert [node.name for node in reading.nodes] == ["w1"]


def test_a_broken_line_costs_itself_only() -> None:
    lines = (
        '{"kind":"Node","metadata":{"name":"a"}}\n{"kind":"Node","metadata":{"na\n{"kind":"Pod","metadata"'
    )
    lines += ':{"name":"p"}}\n'

    reading = read_captured(lines.encode(), now=NOW)

    assert reading.ok
    assert [node.name for node in reading.nodes] == ["a"]
    assert [job.id for job in reading.jobs] == ["default/p"]
    assert [problem.reason for problem in reading.problems] == [ProblemReason.TRUNCATED]


def test_keys_that_stand_twice_are_told() -> None:
    reading = read_captured(b'{"kind":"Node","metadata":{"name":"a","name":"b"}}', now=NOW)

    assert [node.name for node in reading.nodes] == ["b"]
    assert [problem.reason for problem in reading.problems] == [ProblemReason.INCONSISTENT]


def test_a_pod_that_cannot_be_read_keeps_its_node_from_being_called_empty() -> None:
    cordoned = '{"kind":"Node","metadata":{"name":"%s"},"spec":{"unschedulable":true}}'
    bad = '{"kind":"Pod","metadata":{"name":7},"spec":{"nodeName":"w1"}}'
    good = '{"kind":"Pod","metadata":{"name":"p"},"status":{"phase":"Pending"}}'

    reading = read_captured("\n".join([cordoned % "w1", cordoned % "w2", bad, good]).encode(), now=NOW)

    assert {node.name: (node.state.value, node.gpus_allocated) for node in reading.nodes} == {
        "w1": ("draining", None),
        "w2": ("drained", 0),
    }
    assert [problem.node for problem in reading.problems] == ["w1"]
