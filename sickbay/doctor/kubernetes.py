"""Kubernetes: does it answer, which version, may we do what the mode asks for, budgets that never give way.

Requests are GETs and SelfSubjectAccessReviews (a question by POST that changes nothing).
"""

from __future__ import annotations

import email.utils
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from collector.kubernetes.auth import Credentials, CredentialsError, load_credentials
from collector.kubernetes.client import KubernetesClient
from collector.kubernetes.rights import Role, missing_rights
from fleet.clock import Clock
from fleet.errors import BackendError, UnavailableError
from fleet.scheduler import SchedulerSnapshot
from remediator.lease import RemainingLease
from sickbay.config import Config
from sickbay.doctor.clocks import compare
from sickbay.doctor.model import Check, Result, Shared, fail, ok, plural, some, unknown, warn
from sickbay.doctor.slurm_settings import acts

CALL_SECONDS = 10.0
_PAGE_ITEMS, _MAX_PAGES = 500, 20
_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
# What the backend was written against begins here (docs/kubernetes.md).
OLDEST = (1, 25)
# deploy/kubernetes/actor-limits.yaml is a ValidatingAdmissionPolicy of v1.
_WITH_LIMITS = (1, 30)


@dataclass(frozen=True, slots=True)
class _Hello:
    """``GET /version``, and the Date header (epoch seconds) that came with it."""

    version: tuple[int, int] | None
    text: str
    says: float | None
    asked_at: float
    took: float


class KubernetesChecks:
    """Reads by requests of its own; nothing here can write."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._credentials = Shared(self._load)
        self._hello = Shared(self._ask_version)

    def checks(self) -> tuple[Check, ...]:
        seconds = 3 * CALL_SECONDS
        return (
            Check("kubernetes.answers", self.answers, seconds),
            Check("kubernetes.rights", self.rights, seconds + 20.0),  # a refusal is asked twice
            Check("kubernetes.clock", self.clock, seconds),
            Check("kubernetes.budgets", self.budgets, seconds),
        )

    def answers(self) -> Iterator[Result]:
        name = "kubernetes.answers"
        try:
            hello = self._hello.get()
        except CredentialsError as error:
            yield fail(name, str(error), "set scheduler.kubernetes.kubeconfig, or run where one is found")
            return
        except BackendError as error:
            yield fail(name, str(error), "check the address in the kubeconfig and the network to it")
            return
        yield ok(name, f"the API server answers: {hello.text}")
        yield self._version(hello)

    def _version(self, hello: _Hello) -> Result:
        name = "kubernetes.version"
        if hello.version is None:
            return unknown(name, f"its version {hello.text!r} cannot be read", "look at /version")
        shown = _shown(hello.version)
        if hello.version < OLDEST:
            return fail(
                name,
                f"Kubernetes {shown} is older than {_shown(OLDEST)}, which sickbay needs",
                "upgrade the cluster",
            )
        if hello.version < _WITH_LIMITS and acts(self._config):
            return warn(
                name,
                f"Kubernetes {shown} has no ValidatingAdmissionPolicy: sickbay's right to patch nodes cannot "
                "be limited to its own annotations",
                "upgrade to 1.30 or later, or accept that",
            )
        return ok(name, f"Kubernetes {shown}")

    def rights(self) -> Iterator[Result]:
        """What the mode needs: reading to observe, cordon and eviction to act."""
        name = "kubernetes.rights"
        role = Role.ACTOR if acts(self._config) else Role.OBSERVER
        client = KubernetesClient(self._credentials.get(), clock=self._clock, timeout_seconds=CALL_SECONDS)
        try:
            missing = missing_rights(role, client.may)
        finally:
            client.close()
        if missing:
            yield fail(
                name,
                f"mode {self._config.mode} needs the role {role}, and this is missing: "
                f"{some(map(str, missing), 8)}",
                f"apply deploy/kubernetes/{role}.yaml for the account that sickbay uses",
            )
        else:
            yield ok(name, f"all rights of the role {role}, which mode {self._config.mode} needs")

    def clock(self) -> Iterator[Result]:
        """By the answer's Date header (RFC 9110, 6.6.1): whole seconds."""
        hello = self._hello.get()
        yield compare("kubernetes.clock", "the API server", hello.says, hello.asked_at, hello.took)

    def budgets(self) -> Iterator[Result]:
        """PodDisruptionBudgets that allow no eviction: a drain waits at them, by design for ever."""
        never: list[str] = []
        now: list[str] = []
        items = list(self._list(_BUDGETS))
        for item in items:
            blocked = judge_budget(item)
            if blocked is not None:
                meta = item.get("metadata") or {}
                (never if blocked else now).append(f"{meta.get('namespace')}/{meta.get('name')}")
        if never:
            yield warn(
                "kubernetes.budgets_never",
                f"{plural(len(never), 'budget')} can never allow an eviction, even with all pods healthy: "
                f"{some(never)}",
                "their pods stay on a sick node until a person moves them: allow one disruption "
                "(maxUnavailable: 1)",
            )
        if now:
            yield warn(
                "kubernetes.budgets_now",
                f"{plural(len(now), 'budget')} allow no eviction now (pods not healthy): {some(now)}",
                "look at these pods; until they are healthy a drain waits for them",
            )
        if not never and not now:
            yield ok(
                "kubernetes.budgets", f"{plural(len(items), 'PodDisruptionBudget')}, none blocks an eviction"
            )

    # -- reading

    def _load(self) -> Credentials:
        settings = self._config.scheduler.kubernetes
        return load_credentials(settings.kubeconfig, settings.context)

    def _ask_version(self) -> _Hello:
        asked_at, started = self._clock.now(), self._clock.monotonic()
        response = self._get("/version", {})
        took = self._clock.monotonic() - started
        body = _object(response, "/version")
        major, minor = str(body.get("major", "")), str(body.get("minor", "")).rstrip("+")
        version = (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None
        text = str(body.get("gitVersion") or "a version it does not name")[:60]
        return _Hello(version, text, _date(response), asked_at, took)

    def _list(self, path: str) -> Iterator[Mapping[str, Any]]:
        token: str | None = None
        for _ in range(_MAX_PAGES):
            query = {"limit": str(_PAGE_ITEMS), **({"continue": token} if token else {})}
            body = _object(self._get(path, query), path)
            items, meta = body.get("items"), body.get("metadata")
            if not str(body.get("kind", "")).endswith("List"):
                raise UnavailableError(f"GET {path}: the answer is no list")
            yield from (item for item in items or () if isinstance(item, dict))
            token = meta.get("continue") if isinstance(meta, dict) else None
            if not token:
                return
        raise UnavailableError(f"GET {path}: more than {_PAGE_ITEMS * _MAX_PAGES} entries")

    def _get(self, path: str, query: Mapping[str, str]) -> httpx.Response:
        credentials = self._credentials.get()
        endpoint = credentials.endpoint()
        authorization = credentials.authorization()
        headers = {"Accept": "application/json", "User-Agent": "sickbay"}
        if authorization is not None:
            headers["Authorization"] = authorization
        extensions = {"sni_hostname": endpoint.server_name} if endpoint.server_name else {}
        try:
            with httpx.Client(
                base_url=endpoint.host,
                verify=endpoint.verify,
                proxy=endpoint.proxy,
                trust_env=False,
                timeout=CALL_SECONDS,
            ) as http:
                response = http.get(path, params=dict(query), headers=headers, extensions=extensions)
        except httpx.HTTPError as error:
            said = f"{type(error).__name__} {error}".strip()[:200]
            raise UnavailableError(f"no answer from {endpoint.host}: {said}") from error
        if response.status_code != httpx.codes.OK:
            shown = " ".join(response.text[:200].split())
            raise UnavailableError(f"GET {path}: HTTP {response.status_code}: {shown}")
        return response


def observe(config: Config, clock: Clock) -> SchedulerSnapshot:
    """One look as the service takes it, by a client that may not write and is closed afterwards."""
    from remediator.backends.kubernetes import KubernetesBackend  # noqa: PLC0415 - a Slurm site needs none

    settings = config.scheduler.kubernetes
    client = KubernetesClient(
        load_credentials(settings.kubeconfig, settings.context),
        clock=clock,
        timeout_seconds=CALL_SECONDS,
        max_qps=settings.max_qps,
        may_act=RemainingLease(clock).require,
    )
    try:
        return KubernetesBackend(client, clock).observe()
    finally:
        client.close()


def judge_budget(item: Mapping[str, Any]) -> bool | None:
    """None: an eviction is allowed (or no pod is selected). True: never, False: not at the moment.

    policy/v1 status: desiredHealthy pods must remain of expectedPods, so with both equal no pod may go.
    """
    status = item.get("status")
    if not isinstance(status, dict):
        return None
    expected, desired = status.get("expectedPods"), status.get("desiredHealthy")
    if status.get("disruptionsAllowed") != 0 or not isinstance(expected, int) or expected < 1:
        return None
    return isinstance(desired, int) and desired >= expected


def _object(response: httpx.Response, path: str) -> Mapping[str, Any]:
    try:
        body = response.json()
    except ValueError as error:
        raise UnavailableError(f"GET {path}: the answer is no JSON") from error
    if not isinstance(body, dict):
        raise UnavailableError(f"GET {path}: the answer is no object")
    return body


def _date(response: httpx.Response) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(response.headers.get("Date", "")).timestamp()
    except (TypeError, ValueError):
        return None


def _shown(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
