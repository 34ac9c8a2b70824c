"""What was written to the cluster, from the API server's side: who changed which node, evicted which pod."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fleet.clock import Clock
from fleet.marks import Mark
from simulator.kubernetes_api.errors import Json
from simulator.kubernetes_api.objects import is_cordoned
from simulator.kubernetes_api.routes import Request
from simulator.kubernetes_api.server import Answer, KubernetesApi
from simulator.kubernetes_api.store import random_uid
from simulator.ports import Action

OUR_USER = "sickbay"
# The product's annotations, as documented (docs/kubernetes.md); a simulator knows no product code.
PREFIX = "sickbay.io/"
INCIDENT, RULE, SENTENCE, OBSERVED = (PREFIX + name for name in ("incident", "rule", "reason", "observed"))
_NODE = re.compile(r"/api/v1/nodes/([^/]+)")
_EVICTION = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/eviction")
_ACCESS_REVIEW = "selfsubjectaccessreviews"


class RecordedApi(KubernetesApi):
    """Keeps an ``Action`` for each write that changed something. Who comes by HTTP is the service: us.

    While ``away_until`` (epoch seconds) is not over, everybody gets 503.
    """

    def __init__(self, clock: Clock, *, token: str | None, new_uid: Callable[[], str] = random_uid) -> None:
        super().__init__(clock, token=token, new_uid=new_uid)
        self.actions: list[Action] = []
        self.away_until = float("-inf")

    def handle(self, request: Request) -> Answer:
        with self.lock:
            if self.clock.now() < self.away_until:
                return Answer(503, {}, b"the server is currently unable to handle the request")
            return self._recorded(request, OUR_USER, authenticated=True)

    def by_person(self, request: Request, user: str) -> Answer:
        """A request from somebody's own terminal; its record is in their name."""
        with self.lock:
            return self._recorded(request, user, authenticated=False)

    def our_actions(self) -> Sequence[Action]:
        with self.lock:
            return [action for action in self.actions if action.actor == OUR_USER]

    def _recorded(self, request: Request, user: str, *, authenticated: bool) -> Answer:
        before = self._target(request)
        answer = super().handle(request) if authenticated else self.answer(request)
        if answer.ok and request.method != "GET" and not request.path.endswith(_ACCESS_REVIEW):
            self._record(request, user, before)
        return answer

    def _target(self, request: Request) -> Json | None:
        node, pod = _NODE.fullmatch(request.path), _EVICTION.fullmatch(request.path)
        if node is not None:
            return self.store.find("nodes", node[1])
        return self.store.find("pods", pod[2], pod[1]) if pod is not None else None

    def _record(self, request: Request, user: str, before: Json | None) -> None:
        at = self.clock.now()
        if before is None:
            self.actions.append(Action(at, user, request.method.lower(), detail=request.path))
        elif before["kind"] == "Pod":
            meta = before["metadata"]
            job = f"{meta['namespace']}/{meta['name']}"
            self.actions.append(Action(at, user, "requeue", before["spec"].get("nodeName"), job))
        else:
            name = before["metadata"]["name"]
            after = self.store.get("nodes", name)
            if after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
                verb, detail = _change(before, after)
                self.actions.append(Action(at, user, verb, name, detail=detail))


def _change(before: Json, after: Json) -> tuple[str, str]:
    """(a verb as the simulated Slurm has them, words): what a patch did to a node."""
    notes, old = _notes(after), _notes(before)
    if is_cordoned(before) != is_cordoned(after):
        mark = Mark(notes.get(INCIDENT, ""), notes.get(RULE, ""), notes.get(SENTENCE, ""))
        if is_cordoned(before):
            return "uncordon", ""
        return "cordon", mark.reason() if mark.incident else ""
    changed = {key for key in notes.keys() | old.keys() if notes.get(key) != old.get(key)}
    if changed == {OBSERVED}:
        return "annotate", notes.get(OBSERVED, "")
    return "patch", ", ".join(sorted(changed))


def _notes(node: Json) -> dict[str, str]:
    return node["metadata"].get("annotations") or {}
