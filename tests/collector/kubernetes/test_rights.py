"""The manifests grant what each role needs, and nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.kubernetes.rights import RIGHTS, Role

DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


@pytest.mark.parametrize("role", Role)
def test_a_role_grants_its_rights_exactly(role: Role) -> None:
    cluster_role, binding = documents(f"{role}.yaml")

    granted = {
        (verb, resource, group)
        for rule in cluster_role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
    }
    needed = {
        (right.verb, "/".join(filter(None, (right.resource, right.subresource))), right.group)
        for right in RIGHTS[role]
    }
    assert granted == needed
    assert binding["roleRef"]["name"] == cluster_role["metadata"]["name"]


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.yaml")), ids=lambda path: path.name)
def test_no_manifest_grants_deletion_or_wildcards(path: Path) -> None:
    for document in documents(path.name):
        for rule in document.get("rules", ()):
            assert not {"delete", "deletecollection", "*", "escalate", "bind", "impersonate"} & set(
                rule["verbs"]
            )
            assert not {"*", "secrets"} & set(rule["resources"])
