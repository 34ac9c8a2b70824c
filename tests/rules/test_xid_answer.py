"""``explain``: the answer behind ``sickbay xid``, for codes and for log lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.catalogue import load_catalogue
from rules.xid import explain

CATALOGUE = load_catalogue()
CONTRACT = {
    "code",
    "mnemonic",
    "summary",
    "cause",
    "severity",
    "response",
    "repair",
    "why",
    "known",
    "sources",
}


def ask(code: int, line: bytes | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(json.dumps(explain(code, CATALOGUE, line).as_json()))
    return answer


def test_the_answer_for_79() -> None:
    answer = ask(79)
    assert set(answer) >= CONTRACT
    assert "line" not in answer
    assert answer["mnemonic"] == "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"
    assert (answer["cause"], answer["severity"]) == ("bus", "critical")
    assert (answer["response"], answer["repair"]) == ("drain", "reboot")
    assert answer["known"] is True
    assert answer["sources"][0].startswith("NVIDIA")
    assert answer["rule"] == "gpu-fell-off-bus"


def test_the_answer_for_an_unknown_code() -> None:
    answer = ask(999)
    assert set(answer) >= CONTRACT
    assert answer["known"] is False
    assert (answer["response"], answer["repair"], answer["mnemonic"]) == ("observe", "none", None)


def test_every_code_has_an_answer() -> None:
    for code in range(200):
        answer = ask(code)
        assert answer["known"] is (code in CATALOGUE.facts)
        assert answer["why"]
        assert answer["severity"] in ("info", "warning", "critical")


def test_variants_are_listed() -> None:
    whens = {one["when"]: one["response"] for one in ask(154)["variants"]}
    assert whens["none"] == "observe"
    assert whens["node_reboot"] == "drain"
    assert whens["recover_imex_domain"] == "notify"


@pytest.mark.parametrize(
    ("line", "code", "response", "words"),
    [
        (b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 79, "drain", "drained and rebooted"),
        (b"NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=a, Ch 0000000b", 31, "observe", "not the GPU"),
        (
            b"NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 03 (0x0409a0c2 0x00000004)",
            145,
            "observe",
            "noted",
        ),
        (
            b"NVRM: Xid (PCI:0000:29:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
            b"(Node Reboot Required)",
            154,
            "drain",
            "the driver asks for a reboot",
        ),
        (b"NVRM: Xid (PCI:0000:01:00): 154 (", 154, "observe", "torn"),
        (b"NVRM: Xid (PCI:0000:01:00): 999, new", 999, "observe", "not in the catalogue"),
    ],
)
def test_a_line_is_judged_by_its_own_words(line: bytes, code: int, response: str, words: str) -> None:
    read = ask(code, line)["line"]
    assert read["event"]["code"] == code
    assert read["decision"]["response"] == response
    assert words in read["decision"]["sentence"]


def test_a_forged_line_is_no_event() -> None:
    read = ask(
        79, b"Feb  1 00:01:40 n01 app[12]: NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus."
    )["line"]
    assert (read["event"], read["decision"]) == (None, None)
    assert [problem["reason"] for problem in read["problems"]] == ["untrusted"]


@given(st.binary(max_size=300))
def test_any_line_is_answered(line: bytes) -> None:
    ask(79, line)
