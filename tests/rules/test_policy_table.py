"""The XID tables agree with each other, with the rules, and with what was promised about single codes."""

from __future__ import annotations

import pytest

from fleet.findings import Repair, Response, Severity
from rules.catalogue import CatalogueError, load_catalogue
from rules.docs import TRIAGE_RULES
from rules.tables import parse_facts, parse_policy
from rules.variants import VARIANTS

CATALOGUE = load_catalogue()

# A person has said that nobody knows better yet. A code that joins or leaves is a decision: change it here.
TRIAGE = {78, 142, 149, 157, 159, 161, 164, 165, 166, 168, 169, 170, 171, 172, 175}


def test_every_code_of_the_catalogue_is_mapped() -> None:
    assert set(CATALOGUE.facts) == set(range(1, 177))
    bare = {code for code, when in CATALOGUE.policy if not when}
    assert bare == set(CATALOGUE.facts)


def test_the_list_for_human_triage_is_named() -> None:
    assert {line.code for line in CATALOGUE.policy.values() if line.rule in TRIAGE_RULES} == TRIAGE


def test_every_line_has_a_rule_a_reason_and_a_known_variant() -> None:
    for (code, when), line in CATALOGUE.policy.items():
        assert (line.code, line.when) == (code, when)
        assert line.rule in CATALOGUE.by_id
        assert len(line.why) > 20
        assert not when or when in VARIANTS


def test_a_rule_that_finds_is_as_severe_as_the_codes_it_finds() -> None:
    """The finding's severity is the rule's; where the bare number decides it must be the catalogue's."""
    for (code, when), line in CATALOGUE.policy.items():
        rule = CATALOGUE.by_id[line.rule]
        if rule.finds and not when:
            assert rule.severity is CATALOGUE.facts[code].severity, (code, rule.id)


def test_every_xid_rule_is_used_by_the_table_or_by_an_escalation() -> None:
    used = {line.rule for line in CATALOGUE.policy.values()}
    used |= {rule.escalate.rule for rule in CATALOGUE.rules if rule.escalate is not None}
    by_table = {rule.id for rule in CATALOGUE.rules if any(p.by_table for p in rule.on)}
    assert by_table == used


@pytest.mark.parametrize(
    ("code", "when", "rule", "response", "repair", "severity"),
    [
        (79, "", "gpu-fell-off-bus", "drain", "reboot", "critical"),
        (13, "", "gpu-app-fault", "observe", "none", "warning"),
        (31, "", "gpu-app-fault", "observe", "none", "warning"),
        (43, "", "gpu-app-fault", "observe", "none", "warning"),
        (45, "", "gpu-channel-teardown", "observe", "none", "warning"),
        (63, "", "gpu-row-remap-pending", "reset_when_idle", "reset_gpu", "warning"),
        (64, "", "gpu-row-remap-failed", "drain", "hand_over", "critical"),
        (48, "", "gpu-memory-uncorrectable", "drain", "reset_gpu", "critical"),
        (94, "", "gpu-memory-contained", "reset_when_idle", "reset_gpu", "warning"),
        (95, "", "gpu-memory-uncorrectable", "drain", "reset_gpu", "critical"),
        (92, "", "event-observed", "observe", "none", "warning"),
        (74, "", "gpu-nvlink-error", "cordon_after_job", "reset_gpu", "critical"),
        (109, "", "gpu-context-switch-timeout", "cordon_after_job", "reset_gpu", "critical"),
        (119, "", "gpu-needs-reset", "drain", "reset_gpu", "critical"),
        (120, "", "gpu-needs-reset", "drain", "reset_gpu", "critical"),
        (140, "", "gpu-memory-uncorrectable", "drain", "reset_gpu", "critical"),
        (143, "", "gpu-needs-reset", "drain", "reset_gpu", "critical"),
        (145, "", "event-observed", "observe", "none", "warning"),
        (145, "nonfatal", "event-observed", "observe", "none", "warning"),
        (145, "fatal", "gpu-nvlink-fatal", "drain", "reset_gpu", "warning"),
        (154, "", "event-observed", "observe", "none", "warning"),
        (154, "node_reboot", "gpu-recovery-reboot", "drain", "reboot", "warning"),
        (154, "drain_p2p", "gpu-recovery-p2p", "cordon_after_job", "reset_gpu", "warning"),
        (154, "recover_imex_domain", "gpu-recovery-imex", "notify", "none", "warning"),
        (162, "", "event-observed", "observe", "none", "info"),
        (163, "", "gpu-power-smoothing-out", "notify", "none", "warning"),
        (167, "", "gpu-bus-fatal", "drain", "reboot", "critical"),
        (173, "", "gpu-bus-fatal", "drain", "reboot", "critical"),
    ],
)
def test_promised_codes(code: int, when: str, rule: str, response: str, repair: str, severity: str) -> None:
    policy = CATALOGUE.xid_policy(code, when)
    assert (policy.rule, policy.response, policy.repair) == (rule, Response(response), Repair(repair))
    assert policy.severity is Severity(severity)
    assert policy.known


@pytest.mark.parametrize("code", [0, 177, 999, -1, 2**40])
def test_an_unknown_code_is_observed_and_never_fatal(code: int) -> None:
    policy = CATALOGUE.xid_policy(code)
    assert not policy.known
    assert (policy.response, policy.repair) == (Response.OBSERVE, Repair.NONE)
    assert policy.severity is Severity.WARNING
    assert policy.mnemonic is None


def test_only_these_codes_drain_by_their_number_alone() -> None:
    """The conservative list: a code that joins must be argued for."""
    drains = {c for c in CATALOGUE.facts if CATALOGUE.xid_policy(c).response is Response.DRAIN}
    assert drains == {46, 48, 62, 64, 79, 95, 110, 119, 120, 136, 140, 143, 158, 167, 173}


FACTS_HEADER = "code,mnemonic,summary,cause,severity,nvidia_action,impact,source\n"
POLICY_HEADER = "code,when,rule,response,repair,follows,why\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("code,name\n", "t.csv:1"),
        (FACTS_HEADER + "79,A,b,bus,fatal,,node,s\n79,A,b,bus,fatal,,node,s\n", "t.csv:3"),
        (FACTS_HEADER + "79,A,b,bus,grave,,node,s\n", "t.csv:2"),
        (FACTS_HEADER + "x9,A,b,bus,fatal,,node,s\n", "t.csv:2"),
        (FACTS_HEADER + "79,A\n", "t.csv:2"),
        (FACTS_HEADER + '79,"A\n', "t.csv:2"),
    ],
)
def test_a_bad_fact_names_file_and_line(text: str, place: str) -> None:
    with pytest.raises(CatalogueError, match=f"^{place}"):
        parse_facts(text, "t.csv")


@pytest.mark.parametrize(
    "line",
    [
        "79,,no-such-rule,drain,reboot,,because\n",
        "79,,gpu-fell-off-bus,drain,reset_gpu,,because\n",
        "79,,gpu-fell-off-bus,drain,reboot,, \n",
        "79,,gpu-fell-off-bus,drain,reboot,4x,because\n",
    ],
)
def test_a_bad_policy_line_names_file_and_line(line: str) -> None:
    with pytest.raises(CatalogueError, match=r"^p\.csv:2"):
        parse_policy(POLICY_HEADER + line, "p.csv", CATALOGUE.by_id)


def test_a_policy_line_twice_is_refused() -> None:
    line = "79,,gpu-fell-off-bus,drain,reboot,,because\n"
    with pytest.raises(CatalogueError, match=r"^p\.csv:3: code 79  is listed twice"):
        parse_policy(POLICY_HEADER + line + line, "p.csv", CATALOGUE.by_id)
