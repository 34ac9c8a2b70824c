"""Tokens: derived ones speak for one node, static ones follow their files."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sickbay.config import ConfigError, Http, Role
from sickbay.tokens import Identity, TokenBook, agent_token, read_secret, token_node, verify_agent_token

SECRET = b"0123456789abcdef0123456789abcdef"
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}[A-Za-z0-9]", fullmatch=True)


def book(tmp_path, secret=None, **tokens: tuple[str, str]) -> TokenBook:
    """A book of ``name=(role, token)``, each in a file of its own."""
    entries = []
    for name, (role, token) in tokens.items():
        (tmp_path / name).write_text(token + "\n")
        entries.append({"name": name, "role": role, "token_file": tmp_path / name})
    if secret is not None:
        (tmp_path / "secret").write_bytes(secret + b"\n")
    return TokenBook(
        Http(tokens=tuple(entries), agent_secret_file=tmp_path / "secret" if secret is not None else None)
    )


def rewrite(path, text: str) -> None:
    """Replace a file the way a rotation does, with a time stamp that differs for certain."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


class TestAgentTokens:
    def test_known_value_so_that_an_upgrade_keeps_tokens_valid(self):
        assert agent_token(SECRET, "n01") == "sbn1.bjAx.tViXvvg6JvXgGvW8CZHDwZ4PZo_NbW1IHlYe7Y9mIcY"

    @given(NAMES, NAMES)
    def test_a_token_speaks_for_its_node_and_no_other(self, node, other):
        token = agent_token(SECRET, node)
        assert token.startswith("sbn1.")
        assert verify_agent_token(SECRET, node, token)
        assert token_node(SECRET, token) == node
        if other != node:
            assert not verify_agent_token(SECRET, other, token)

    def test_another_secret_makes_it_nobodys(self):
        token = agent_token(SECRET, "n01")
        assert token_node(b"another secret of some length", token) is None
        assert not verify_agent_token(b"another secret of some length", "n01", token)

    @pytest.mark.parametrize("node", ["n[1-4]", "n1,n2", "", "n1/..", "-n1"])
    def test_only_single_names_get_one(self, node):
        with pytest.raises(ConfigError, match="no single host name"):
            agent_token(SECRET, node)
        assert not verify_agent_token(SECRET, node, "sbn1.x.y")

    @given(st.text(max_size=80))
    def test_any_text_is_nobodys(self, text):
        assert token_node(SECRET, text) is None
        assert token_node(SECRET, f"sbn1.{text}") is None

    def test_other_spellings_of_a_token_are_refused(self):
        token = agent_token(SECRET, "n01")
        for spelling in (token + "=", token + " ", token.replace("sbn1", "SBN1"), token + ".x", token[:-1]):
            assert token_node(SECRET, spelling) is None

    def test_a_signed_part_cannot_be_moved_to_another_node(self):
        _, _, mac = agent_token(SECRET, "n01").split(".")
        _, name, _ = agent_token(SECRET, "n02").split(".")
        assert token_node(SECRET, f"sbn1.{name}.{mac}") is None


class TestTokenBook:
    def test_who_is_who(self, tmp_path):
        tokens = book(
            tmp_path, SECRET, ops=("operator", "o" * 20), eyes=("viewer", "v" * 20), n07=("agent", "a" * 20)
        )
        assert tokens.identify("o" * 20) == Identity("ops", Role.OPERATOR)
        assert tokens.identify("v" * 20) == Identity("eyes", Role.VIEWER)
        assert tokens.identify("a" * 20) == Identity("n07", Role.AGENT, node="n07")
        assert tokens.identify(agent_token(SECRET, "n03")) == Identity("n03", Role.AGENT, node="n03")

    @pytest.mark.parametrize("token", ["", "x", "o" * 19, "o" * 21, "o" * 100_000, "ö" * 20, "\udcff" * 20])
    def test_what_is_nobodys(self, tmp_path, token):
        assert book(tmp_path, SECRET, ops=("operator", "o" * 20)).identify(token) is None

    def test_without_a_secret_there_are_no_agents(self, tmp_path):
        assert book(tmp_path, ops=("operator", "o" * 20)).identify(agent_token(SECRET, "n03")) is None

    def test_rotation_needs_no_restart(self, tmp_path):
        tokens = book(tmp_path, SECRET, ops=("operator", "o" * 20))
        rewrite(tmp_path / "ops", "p" * 20)
        assert tokens.identify("o" * 20) is None
        assert tokens.identify("p" * 20) == Identity("ops", Role.OPERATOR)
        old, new = agent_token(SECRET, "n01"), agent_token(b"z" * 32, "n01")
        rewrite(tmp_path / "secret", "z" * 32)
        assert tokens.identify(old) is None
        assert tokens.identify(new) == Identity("n01", Role.AGENT, node="n01")

    def test_a_file_that_goes_away_takes_its_token_along_until_it_is_back(self, tmp_path):
        tokens = book(tmp_path, ops=("operator", "o" * 20))
        (tmp_path / "ops").unlink()
        assert tokens.identify("o" * 20) is None
        (tmp_path / "ops").write_text("o" * 20)
        assert tokens.identify("o" * 20) == Identity("ops", Role.OPERATOR)

    def test_a_file_cut_short_is_no_token_and_is_logged_once(self, tmp_path, caplog):
        tokens = book(tmp_path, ops=("operator", "o" * 20))
        rewrite(tmp_path / "ops", "o")
        assert tokens.identify("o") is None
        assert tokens.identify("") is None
        assert tokens.identify("o" * 20) is None
        assert [record.levelname for record in caplog.records] == ["ERROR"]

    def test_two_names_with_one_token_are_refused(self, tmp_path):
        with pytest.raises(ConfigError, match="holds the same token as that of 'ops'"):
            book(tmp_path, ops=("operator", "o" * 20), eyes=("viewer", "o" * 20))


class TestFiles:
    def test_missing(self, tmp_path):
        with pytest.raises(ConfigError, match="no such file; write a long random text into it"):
            read_secret(tmp_path / "gone")

    def test_too_short_says_how_to_make_one_and_not_what_it_is(self, tmp_path):
        (tmp_path / "t").write_text("  hunter2\n")
        with pytest.raises(ConfigError) as caught:
            read_secret(tmp_path / "t")
        assert str(caught.value) == (
            f"{tmp_path}/t: the secret has 7 characters, 16 are the least; "
            "make one with: openssl rand -hex 32"
        )

    def test_too_large(self, tmp_path):
        (tmp_path / "t").write_text("x" * 10_000)
        with pytest.raises(ConfigError, match="is this a token file"):
            read_secret(tmp_path / "t")

    def test_folder(self, tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_secret(tmp_path)

    def test_white_space_around_it_does_not_count(self, tmp_path):
        (tmp_path / "t").write_text("\n  " + "x" * 16 + " \n")
        assert read_secret(tmp_path / "t") == b"x" * 16
