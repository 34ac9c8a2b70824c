"""Host lists: as Slurm prints them, and as nobody should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.slurm.hostlist import expand
from fleet.errors import InvalidInputError
from fleet.identity import is_node_name

LISTS: dict[str, list[str] | None] = {
    "node[001-003]": ["node001", "node002", "node003"],
    "n[9-11]": ["n9", "n10", "n11"],
    "n[08-11]": ["n08", "n09", "n10", "n11"],
    "rack[0-1]-node[01-02]": ["rack0-node01", "rack0-node02", "rack1-node01", "rack1-node02"],
    "nodeA,nodeB[001,003],nodeC": ["nodeA", "nodeB001", "nodeB003", "nodeC"],
    "c457-[011-012],c429-002": ["c457-011", "c457-012", "c429-002"],
    "tux[1-2]-ib0": ["tux1-ib0", "tux2-ib0"],
    "ml-16-node-[001-002,004],ml-17-node-001": [
        "ml-16-node-001",
        "ml-16-node-002",
        "ml-16-node-004",
        "ml-17-node-001",
    ],
    "login": ["login"],
    "": [],
    "(null)": [],
    "None assigned": [],
    "n[1-2],n[2-3]": ["n1", "n2", "n3"],
    "host[001,003-004,006]": ["host001", "host003", "host004", "host006"],
    " n1 , n2 ": ["n1", "n2"],
    "n[001-100000000]": None,
    "n[1-300]-[1-300]-[1-300]": None,
    "n[1-": None,
    "n]1[": None,
    "n[3-1]": None,
    "n[1-2,,3]": None,
    "n[1-3/2]": None,
    "n[[1-2]]": None,
    "a,,b": None,
    "@all": None,
    "@*": None,
    "n[1-4]!n2": None,
    "n1&n2": None,
    "*": None,
    "$(id)": None,
    "-n": None,
}


@pytest.mark.parametrize("text", LISTS)
def test_expansion(text: str) -> None:
    expected = LISTS[text]
    if expected is None:
        with pytest.raises(InvalidInputError):
            expand(text)
    else:
        assert list(expand(text)) == expected


def test_a_limit_counts_the_whole_list() -> None:
    with pytest.raises(InvalidInputError, match="more than 10"):
        expand("n[1-6],m[1-6]", limit=10)
    assert len(expand("n[1-5],m[1-5]", limit=10)) == 10


@given(st.text(alphabet="n01239,[]- ()@*!/", max_size=30))
def test_anything_expands_to_names_or_is_refused(text: str) -> None:
    try:
        names = expand(text)
    except InvalidInputError:
        return
    assert all(is_node_name(name) for name in names)
    assert len(set(names)) == len(names)
