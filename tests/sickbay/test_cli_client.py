"""Client commands against a real HTTP server with canned answers."""

# ruff: noqa: E501 - tables of what is sent and said, one case per line
from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sickbay import cli, cli_views

WHY = {
    "node": "n01",
    "verdict": "unhealthy",
    "owner": "sickbay",
    "findings": [
        {
            "id": "f1",
            "rule": "xid-fatal",
            "kind": "xid",
            "gpu": "3",
            "uuid": "GPU-1",
            "severity": "critical",
            "response": "drain",
            "since": 1767225600.0,
            "evidence": {"code": 79, "message": "[red]fallen off\x1b[31m the bus", "x": None},
        }
    ],
    "incident": {"id": "i-7", "state": "draining", "blocked_by": ["budget"]},
    "next_step": {"step": "requeue", "reason": "job 4711 still runs here"},
    "gates": [
        {"gate": "mode", "blocks": False, "reason": "the mode is auto"},
        {"gate": "budget", "blocks": True, "reason": "2 of 2 nodes of pool gpu are in flight"},
    ],
}
INCIDENT = {
    "id": "i-7",
    "node": "n01",
    "incarnation": None,
    "state": "returned",
    "blocked_by": [],
    "findings": WHY["findings"],
    "steps": [
        {"at": 1767225600.0, "step": None, "phase": "decision", "outcome": None, "reason": "XID 79", "actor": "sickbay"},
        {"at": 1767225602.0, "step": "cordon", "phase": "intent", "outcome": None, "reason": "fatal", "actor": "sickbay"},
        {"at": 1767225725.0, "step": "cordon", "phase": "effect", "outcome": "done", "reason": "read back", "actor": "sickbay"},
    ],
}  # fmt: skip


def item(name: str, verdict: str = "healthy") -> dict[str, Any]:
    return {
        "name": name,
        "state": "idle",
        "verdict": verdict,
        "owner": "none",
        "pool": "gpu",
        "incident": None,
    }


@dataclass
class Api:
    """Canned answers by "METHOD path?query" and what was asked."""

    url: str = ""
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    date: str | None = None

    def say(self, request: str, body: Any, status: int = 200) -> None:
        self.answers[request] = (status, body)


@pytest.fixture
def api() -> Iterator[Api]:
    state = Api()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            key = f"{self.command} {self.path}"
            state.asked.append((key, {name.lower(): value for name, value in self.headers.items()}, body))
            status, said = state.answers.get(key, (404, {"error": f"no canned answer for {key}"}))
            raw = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return state.date or super().date_time_string(timestamp)

        do_GET = do_POST = answer  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def sickbay(api, capsys, monkeypatch):
    monkeypatch.setenv("SICKBAY_URL", api.url)
    monkeypatch.delenv("SICKBAY_TOKEN_FILE", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # must not matter on loopback
    monkeypatch.setenv("TZ", "UTC")

    def run(*args: object) -> tuple[int, str, str]:
        code = cli.run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return run


class TestReading:
    @pytest.mark.parametrize(
        ("date", "age"),
        [
            ("Thu, 01 Jan 2026 00:02:00 GMT", "(2 min ago)"),
            ("yesterday", "ago)"),
            ("Wed, 31 Dec 2025 23:59:59 GMT", ""),
        ],
    )
    def test_ages_are_by_the_clock_of_the_controller(self, api, sickbay, date, age):
        """Its clock may be another one (the demo's is simulated); a date that is none is passed over."""
        api.date = date
        api.say("GET /api/v1/nodes/n01/why", WHY)
        code, out, _ = sickbay("why", "n01")
        assert code == 0
        told = out.partition("00:00:00")[2].splitlines()[0]
        assert ("ago" in told) == bool(age)
        assert age in told

    def test_why_says_everything(self, api, sickbay):
        api.say("GET /api/v1/nodes/n01/why", WHY)
        code, out, err = sickbay("why", "n01")
        assert (code, err) == (0, "")
        assert "n01 is unhealthy, drained by sickbay" in out
        assert "xid-fatal" in out
        assert "code=79, message=[red]fallen off\ufffd[31m the bus" in out  # neither markup nor escapes
        assert "incident: i-7, draining, blocked by budget" in out
        assert "next step: requeue - job 4711 still runs here" in out
        lines = [line.split() for line in out.splitlines()]
        assert ["mode", "pass", "the", "mode", "is", "auto"] in lines
        assert [
            "budget",
            "block",
            "2",
            "of",
            "2",
            "nodes",
            "of",
            "pool",
            "gpu",
            "are",
            "in",
            "flight",
        ] in lines

    def test_why_says_what_is_waited_for(self, api, sickbay):
        api.say("GET /api/v1/nodes/n01/why", WHY | {"next_step": None, "waiting": "waits for job 7 to end"})
        _, out, _ = sickbay("why", "n01")
        assert "next step: none - waits for job 7 to end\n" in out

    def test_why_says_why(self, api, sickbay):
        """Unknown without a reason helps nobody, and a hostile note reaches no terminal."""
        body = {
            "node": "n01",
            "verdict": "unknown",
            "because": "its exporter last answered 61 s ago",
            "metrics": {"pending": ["GPU 2 is hot for 3 minutes"], "unknown": ["n01 is silent"]},
            "notes": [{"at": 0, "reason": f"note {n} \x1b[31m"} for n in (*range(7), 6, 6)],
        }
        api.say("GET /api/v1/nodes/n01/why", body)
        code, out, _ = sickbay("why", "n01")
        assert code == 0
        assert out.startswith("n01 is unknown\nbecause: its exporter last answered 61 s ago\n\nno findings\n")
        assert "not yet a finding: GPU 2 is hot for 3 minutes\ncannot be judged: n01 is silent\n" in out
        assert [n for n in range(7) if f"note {n}" in out] == [2, 3, 4, 5, 6]
        assert "\x1b" not in out

    def test_why_says_how_the_last_incident_ended(self, api, sickbay):
        last = {"id": "i-6", "state": "handed_over", "reason": "2 repairs did not help"}
        api.say("GET /api/v1/nodes/n01/why", WHY | {"incident": None, "last_incident": last})
        _, out, _ = sickbay("why", "n01")
        assert "incident: none; the last one, i-6, is handed_over: 2 repairs did not help\n" in out

    def test_a_healthy_node_is_an_answer_too(self, api, sickbay):
        api.say("GET /api/v1/nodes/n02/why", {"node": "n02", "verdict": "healthy", "owner": "none"})
        code, out, _ = sickbay("why", "n02")
        assert code == 0
        assert "n02 is healthy\n" in out
        assert "no findings" in out
        assert "next step: none" in out

    def test_json_is_the_body_as_it_came(self, api, sickbay):
        body = '{"node":  "n01", "verdict": "unknown", "ü": 1.50}'
        api.say("GET /api/v1/nodes/n01/why", body)
        assert sickbay("why", "n01", "--json") == (0, body + "\n", "")

    def test_nodes_follows_every_page(self, api, sickbay):
        api.say("GET /api/v1/nodes", {"items": [item("n01"), item("n02")], "next": "n02"})
        api.say("GET /api/v1/nodes?after=n02", {"items": [item("n03", "unhealthy")], "next": "n03"})
        api.say("GET /api/v1/nodes?after=n03", {"items": [item("n04", "unknown")], "next": None})
        code, out, _ = sickbay("nodes")
        assert code == 0
        assert [line.split()[0] for line in out.splitlines()] == ["node", "n01", "n02", "n03", "n04", "4"]
        assert "4 nodes, 1 unhealthy, 1 unknown" in out
        code, out, _ = sickbay("nodes", "--json")
        answer = json.loads(out)
        assert [row["name"] for row in answer["items"]] == ["n01", "n02", "n03", "n04"]
        assert answer["next"] is None

    def test_paging_without_an_end_is_noticed(self, api, sickbay):
        api.say("GET /api/v1/nodes", {"items": [], "next": "n"})
        api.say("GET /api/v1/nodes?after=n", {"items": [], "next": "n"})
        code, _, err = sickbay("nodes")
        assert code == 1
        assert "without an end" in err

    def test_incidents_with_filters_and_pages(self, api, sickbay):
        row = {
            "id": "i-7", "node": "n01", "state": "draining", "blocked_by": ["mode", "rate"],
            "opened_at": 1767225600.0, "closed_at": None, "rules": ["xid-fatal"],
        }  # fmt: skip
        api.say("GET /api/v1/incidents?state=draining&node=n01", {"items": [row], "next": 1767225600.0})
        api.say(
            "GET /api/v1/incidents?state=draining&node=n01&before=1767225600.0", {"items": [], "next": None}
        )
        code, out, _ = sickbay("incidents", "--state", "draining", "--node", "n01")
        assert code == 0
        assert "i-7" in out
        assert "mode, rate" in out
        assert "2026-01-01" in out

    def test_no_incidents(self, api, sickbay):
        api.say("GET /api/v1/incidents", {"items": [], "next": None})
        assert sickbay("incidents") == (0, "no incidents\n", "")

    def test_one_incident_is_a_timeline(self, api, sickbay):
        api.say("GET /api/v1/incidents/i-7", INCIDENT)
        code, out, _ = sickbay("incidents", "i-7")
        assert code == 0
        assert "i-7 on n01: returned" in out
        steps = [line for line in out.splitlines() if "cordon" in line]
        assert "+2 s" in steps[0]
        assert "+2 min 5 s" in steps[1]
        assert "done" in steps[1]
        code, out, _ = sickbay("incidents", "i-7", "--json")
        assert json.loads(out) == INCIDENT

    def test_an_id_and_a_filter_contradict(self, sickbay):
        code, _, err = sickbay("incidents", "i-7", "--node", "n01")
        assert code == 2
        assert "leave --state and --node out" in err

    def test_odd_answers_are_shown_as_far_as_they_go(self, api, sickbay):
        api.say("GET /api/v1/nodes/n01/why", {"findings": [1, {"since": "x", "evidence": [2]}], "gates": "?"})
        code, out, _ = sickbay("why", "n01")
        assert code == 0
        assert "- is -" in out


class TestActing:
    @pytest.mark.parametrize(
        ("args", "request_line", "body", "said"),
        [
            (["approve", "i-7"], "POST /api/v1/incidents/i-7/approve", {}, "approved i-7"),
            (["cancel", "i-7", "--reason", "r"], "POST /api/v1/incidents/i-7/cancel", {"reason": "r"}, "cancelled i-7"),
            (["hold", "n01", "--reason", "r"], "POST /api/v1/nodes/n01/hold", {"reason": "r"},
             "holding n01 until 'sickbay release n01'"),
            (["hold", "n01", "--reason", "r", "--for", "10m"], "POST /api/v1/nodes/n01/hold",
             {"reason": "r", "expires_in_seconds": 600}, "holding n01 for 10 min"),
            (["release", "n01"], "POST /api/v1/nodes/n01/release", {}, "released n01"),
            (["pause", "--reason", "r"], "POST /api/v1/pause", {"reason": "r"},
             "paused the fleet: no action is taken until 'sickbay resume'"),
            (["pause", "--pool", "gpu", "--reason", "r", "--for", "1h"], "POST /api/v1/pause",
             {"reason": "r", "expires_in_seconds": 3600, "pool": "gpu"}, "paused pool gpu: no action is taken for 1 h"),
            (["resume"], "POST /api/v1/resume", {}, "resumed the fleet"),
            (["resume", "--pool", "gpu"], "POST /api/v1/resume", {"pool": "gpu"}, "resumed pool gpu"),
        ],
    )  # fmt: skip
    def test_what_is_sent_and_said(self, api, sickbay, args, request_line, body, said):
        api.say(request_line, {"ok": True})
        assert sickbay(*args) == (0, said + "\n", "")
        assert api.asked[0][0] == request_line
        assert api.asked[0][2] == body
        assert sickbay(*args, "--json") == (0, '{"ok": true}\n', "")

    def test_bad_duration_is_bad_usage_and_nothing_is_sent(self, api, sickbay):
        code, _, err = sickbay("pause", "--reason", "r", "--for", "soon")
        assert code == 2
        assert "such as 10m or 1h30m" in err
        assert api.asked == []

    def test_names_cannot_leave_their_place_in_the_path(self, api, sickbay):
        sickbay("release", "n01/../../pause?x=")
        assert api.asked[0][0] == "POST /api/v1/nodes/n01%2F..%2F..%2Fpause%3Fx%3D/release"


class TestTokens:
    def test_token_from_option_and_environment(self, api, sickbay, tmp_path, monkeypatch):
        (tmp_path / "t").write_text("t" * 20 + "\n")
        api.say("GET /api/v1/nodes", {"items": [], "next": None})
        sickbay("nodes", "--token-file", tmp_path / "t")
        monkeypatch.setenv("SICKBAY_TOKEN_FILE", str(tmp_path / "t"))
        sickbay("nodes")
        monkeypatch.delenv("SICKBAY_TOKEN_FILE")
        sickbay("nodes")
        sent = [headers.get("authorization") for _, headers, _ in api.asked]
        assert sent == ["Bearer " + "t" * 20] * 2 + [None]

    @pytest.mark.parametrize("text", ["t" * 20 + "\n" + "u" * 20, "ö" * 20, "a token with blanks"])
    def test_what_is_no_token(self, api, sickbay, tmp_path, text):
        (tmp_path / "t").write_text(text)
        code, _, err = sickbay("nodes", "--token-file", tmp_path / "t")
        assert code == 2
        assert err == f"{tmp_path}/t: is no token; it must be one line of plain ASCII\n"
        assert api.asked == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "body", "line"),
        [
            (401, {"error": "no"}, "URL asks for a token; name its file with --token-file or SICKBAY_TOKEN_FILE"),
            (403, {"error": "eyes is a viewer."}, "not allowed: eyes is a viewer"),
            (403, "", "not allowed: this needs a token with role operator"),
            (400, {"error": "no pool 'x'; there is: gpu"}, "no pool 'x'; there is: gpu"),
            (404, {"error": "no node is called n09"}, "no node is called n09"),
            (409, {"error": "held\nalready\x1b[2J"}, "held already [2J"),
            (503, {"error": "the store is full"}, "the controller answered 503: the store is full; whether it was done "
             "is unknown, so ask again before repeating it; its log says more"),
            (404, "<html>", "the controller answered 404: Not Found; does --url point at a controller?"),
            (302, "", "the controller answered 302: Found; does --url point at a controller?"),
            (200, "<html>", "URL did not answer with a JSON object; does --url point at a controller?"),
            (200, "[1]", "URL did not answer with a JSON object; does --url point at a controller?"),
        ],
    )  # fmt: skip
    def test_one_line_and_1(self, api, sickbay, status, body, line):
        api.say("POST /api/v1/nodes/n09/hold", body, status)
        expected = "sickbay: " + line.replace("URL", api.url) + "\n"
        assert sickbay("hold", "n09", "--reason", "r") == (1, "", expected)
        assert sickbay("hold", "n09", "--reason", "r", "--json") == (1, "", expected)

    def test_unknown_token(self, api, sickbay, tmp_path):
        (tmp_path / "t").write_text("t" * 20)
        api.say("GET /api/v1/nodes", {"error": "who?"}, 401)
        code, _, err = sickbay("nodes", "--token-file", tmp_path / "t")
        assert code == 1
        assert f"does not know the token in {tmp_path}/t" in err
        assert "tttt" not in err

    def test_nobody_there(self, sickbay):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert sickbay("why", "n01", "--url", url) == (
            1,
            "",
            f"sickbay: no answer from {url} (connection refused); start the controller with "
            "'sickbay serve --config FILE', or say where it is with --url or SICKBAY_URL\n",
        )

    def test_silence_ends(self, sickbay, monkeypatch):
        monkeypatch.setattr("sickbay.api_client.READ_SECONDS", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            code, _, err = sickbay("nodes", "--url", url)
        assert (code, err) == (1, f"sickbay: {url} did not answer in time; look at the controller's log\n")

    @pytest.mark.parametrize("url", ["127.0.0.1:8470", "ftp://x", "http://", ""])
    def test_bad_url(self, sickbay, url):
        code, _, err = sickbay("nodes", f"--url={url}")
        assert code == 2
        assert len(err.splitlines()) == 1
        assert "write a whole URL such as http://host:port" in err


def test_names_are_never_cut_in_a_pipe():
    long = "n" * 120
    console = cli_views.console()
    with console.capture() as captured:
        console.print(cli_views.nodes({"items": [item(long)]}))
    assert long in captured.get()
