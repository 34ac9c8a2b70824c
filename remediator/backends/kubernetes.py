"""The Kubernetes backend: one merge patch per node change, evictions by policy/v1, nothing believed unread.

Choices that cost others dearly elsewhere: a cordon and its claim in one write that fails when somebody
changed the node in between (kubectl sends the bit alone, last writer wins); a foreign cordon is never
touched, not even released; a pod is never deleted and never gets a shorter grace; a PodDisruptionBudget is
its owner's veto. Facts: Kubernetes documentation, "API-initiated Eviction", "Safely Drain a Node".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from collector.kubernetes.client import KubernetesClient
from collector.kubernetes.cluster import read_cluster
from collector.kubernetes.eviction import Eviction, EvictionAnswer, read_eviction
from collector.kubernetes.nodes import read_node
from collector.kubernetes.objects import NodeObject, OwnerReference, PodObject
from collector.kubernetes.pods import classify, controller_of, is_daemon
from fleet.clock import Clock
from fleet.errors import (
    BackendError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RateLimitedError,
    UnavailableError,
)
from fleet.identity import is_node_name
from fleet.marks import Mark
from fleet.scheduler import (
    JobRecord,
    NodeRecord,
    RequeueOutcome,
    RequeueRequest,
    RequeueState,
    SchedulerSnapshot,
)
from remediator.backends.kubernetes_nodes import (
    Patch,
    cordon_patch,
    forget_patch,
    has_stale_marks,
    is_ours,
    note_patch,
    uncordon_patch,
    why_not_annotate,
    why_not_cordon,
    why_not_reboot,
    why_not_uncordon,
)
from remediator.backends.kubernetes_requeue import (
    accepted,
    after_eviction,
    decide,
    leaving,
    parse_pod_id,
    selecting,
)

_LOG = logging.getLogger(__name__)
# The kubelet writes the node too: our version may be old by the time we write, without anybody's intent.
_ATTEMPTS = 4


class KubernetesBackend:
    """``fleet.scheduler.SchedulerBackend`` over the Kubernetes API. Safe to call from several threads.

    A job is a pod, known as ``namespace/name``. Nodes are named one by one, never by a selector.
    """

    kind = "kubernetes"

    def __init__(self, client: KubernetesClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._daemonsets: frozenset[str] | None = None

    # -- looking

    def observe(self) -> SchedulerSnapshot:
        """All nodes, all unfinished pods, all DaemonSets, in pages. The first two failing: unknown, raises.

        Jobs are the pods that a drain has to bring off: no DaemonSet, mirror or finished pods.
        """
        taken_at = self._clock.now()
        nodes = self._client.list_nodes()
        pods = self._client.list_pods()
        # After the pods: a DaemonSet that made one of them and still exists is then in the list.
        self._daemonsets = self._list_daemonsets()
        cluster = read_cluster(nodes, pods, now=taken_at, is_orphan=self._is_orphan)
        jobs = tuple(
            _as_planned(job)
            for pod, job in zip(pods, cluster.jobs, strict=True)
            if classify(pod, is_orphan=self._is_orphan).is_workload
        )
        problems = tuple(problem.message for problem in cluster.problems)
        return SchedulerSnapshot(taken_at, {node.name: node for node in cluster.nodes}, jobs, problems)

    def observe_node(self, node: str) -> NodeRecord:
        return self._record(self._get_node(node))

    # -- nodes

    def cordon(self, node: str, mark: Mark) -> NodeRecord:
        def next_patch(found: NodeObject, record: NodeRecord) -> Patch | None:
            if is_ours(record, mark):
                return None
            self._raise(why_not_cordon(found, record))
            return cordon_patch(mark, now=self._clock.now())

        after = self._write(node, next_patch)
        if not is_ours(after, mark):
            raise ConflictError(f"{node} does not show our cordon after it was written; read it again")
        return after

    def uncordon(self, node: str, mark: Mark) -> NodeRecord:
        def next_patch(found: NodeObject, record: NodeRecord) -> Patch | None:
            if not record.is_cordoned:  # a person lifted it: what is left of our claim goes too
                return forget_patch() if has_stale_marks(found, mark) else None
            why = why_not_uncordon(record, mark)
            if why is not None and not is_ours(record, mark) and has_stale_marks(found, mark):
                return forget_patch()  # the cordon is somebody's by now: it stays, our claim on it goes
            self._raise(why)
            return uncordon_patch()

        after = self._write(node, next_patch)
        if after.is_cordoned:
            self._raise(why_not_uncordon(after, mark))
            raise UnavailableError(f"{node} is still cordoned after the uncordon; read it again")
        return after

    def reboot(self, node: str, mark: Mark, *, ordered_at: float) -> NodeRecord:
        """Never: there is no such call. RefusedError says what to configure; ConflictError as elsewhere."""
        del ordered_at
        raise why_not_reboot(self.observe_node(node), mark)

    def annotate(self, node: str, text: str) -> NodeRecord:
        def next_patch(_: NodeObject, record: NodeRecord) -> Patch | None:
            if record.comment == text:
                return None
            self._raise(why_not_annotate(record))
            return note_patch(text)

        return self._write(node, next_patch)

    # -- pods

    def requeue(self, request: RequeueRequest) -> RequeueOutcome:
        """DONE once the eviction is in effect; its node is ``draining`` until the pod has ended."""
        pod_id = parse_pod_id(request.job)
        if pod_id is None:
            return RequeueOutcome(RequeueState.REFUSED, f"{request.job[:80]!r} does not name one pod")
        pod = self._read_pod(*pod_id)
        outcome = decide(pod, request, is_orphan=self._confirmed_orphan(pod))
        if not request.begin and (outcome is None or outcome.state is RequeueState.IN_PROGRESS):
            # An eviction that is not accepted yet holds nothing: there is nothing to bring to an end.
            return RequeueOutcome(
                RequeueState.REFUSED, f"pod {request.job} has not been evicted and stays where it is"
            )
        if outcome is not None or pod is None:
            return outcome or RequeueOutcome(RequeueState.GONE, f"pod {request.job} is gone")
        if not self._get_node_is_cordoned(request.node):
            return RequeueOutcome(
                RequeueState.REFUSED,
                f"{request.node} is not cordoned any more; pod {pod.id} stays where it is",
            )
        return self._evict(pod, request)

    def _evict(self, pod: PodObject, request: RequeueRequest) -> RequeueOutcome:
        try:
            answer = read_eviction(self._client.evict(pod.metadata))
        except UnavailableError as error:  # it may have been done: only reading tells
            answer = EvictionAnswer(Eviction.RETRY, str(error))
        if answer.kind is Eviction.THROTTLED:
            raise RateLimitedError(f"evicting pod {pod.id}: {answer.text}", answer.retry_after_seconds)
        if answer.kind is Eviction.DENIED:
            raise ForbiddenError(f"evicting pod {pod.id}: {answer.text}")
        if answer.kind is Eviction.GONE:
            return RequeueOutcome(RequeueState.GONE, f"pod {pod.id} is gone")
        if answer.kind in (Eviction.ACCEPTED, Eviction.MOVED_ON, Eviction.RETRY, Eviction.LEAVING):
            seen = self._seen_leaving(pod, request)
            if seen is not None:
                return seen
        budgets = self._budgets_of(pod) if _names_budgets(answer) else ()
        return after_eviction(answer, pod, budgets)

    def _seen_leaving(self, pod: PodObject, request: RequeueRequest) -> RequeueOutcome | None:
        """Read back: is this very pod on its way, or gone? None: it is as before."""
        namespace = pod.metadata.namespace or "default"
        now = self._read_pod(namespace, pod.metadata.name)
        if now is None or now.metadata.uid != pod.metadata.uid:
            return RequeueOutcome(RequeueState.DONE, accepted(pod))
        if now.metadata.deletion_timestamp is not None:
            return RequeueOutcome(RequeueState.DONE, f"{accepted(pod)}; {leaving(now)}")
        if now.spec is not None and now.spec.node_name != request.node:
            return RequeueOutcome(RequeueState.DONE, f"pod {pod.id} is not on {request.node}")
        return None

    # -- inside

    def _write(self, node: str, next_patch: Callable[[NodeObject, NodeRecord], Patch | None]) -> NodeRecord:
        """Read, decide, write that version; after a conflict everything is read and decided anew."""
        for attempt in range(1, _ATTEMPTS + 1):
            found = self._get_node(node)
            record = self._record(found)
            patch = next_patch(found, record)
            if patch is None:
                return record
            try:
                return self._record(self._client.patch_node(found, patch))
            except ConflictError:
                _LOG.info("kubernetes: %s changed while we wrote (attempt %d); reading again", node, attempt)
        raise ConflictError(f"{node} changed each of {_ATTEMPTS} times between our read and our write")

    def _get_node(self, node: str) -> NodeObject:
        if not is_node_name(node):
            raise NotFoundError(f"{node[:60]!r} is not the name of one node; hostlists are not accepted")
        return self._client.get_node(node)

    def _get_node_is_cordoned(self, node: str) -> bool:
        found = self._get_node(node)
        return bool(found.spec and found.spec.unschedulable)

    def _record(self, node: NodeObject) -> NodeRecord:
        pods = self._client.list_pods_on(node.metadata.name)
        return read_node(node, pods, now=self._clock.now(), is_orphan=self._is_orphan).record

    def _read_pod(self, namespace: str, name: str) -> PodObject | None:
        try:
            return self._client.get_pod(namespace, name)
        except NotFoundError:
            return None

    def _list_daemonsets(self) -> frozenset[str] | None:
        """UIDs; None where we may not look: then every DaemonSet counts as existing."""
        try:
            return frozenset(one.metadata.uid or "" for one in self._client.list_daemonsets())
        except (ForbiddenError, NotFoundError) as error:
            _LOG.info("kubernetes: DaemonSets cannot be listed: %s", error)
            return None

    def _is_orphan(self, owner: OwnerReference) -> bool:
        known = self._daemonsets
        return known is not None and owner.uid not in known

    def _confirmed_orphan(self, pod: PodObject | None) -> Callable[[OwnerReference], bool]:
        """Before an eviction the DaemonSet itself is looked up: the list may be older than it."""
        owner = controller_of(pod) if pod is not None else None
        if pod is None or owner is None or not is_daemon(owner) or not self._is_orphan(owner):
            return lambda _: False
        try:
            found = self._client.get_daemonset(pod.metadata.namespace or "default", owner.name)
            gone = found.metadata.uid != owner.uid
        except NotFoundError:
            gone = True
        except ForbiddenError:
            gone = False
        return lambda _: gone

    def _budgets_of(self, pod: PodObject) -> tuple[str, ...]:
        """For a sentence only: where they may not be read, the sentence has no names."""
        try:
            return selecting(self._client.budgets_in(pod.metadata.namespace or "default"), pod)
        except BackendError as error:
            _LOG.info("kubernetes: the budgets of pod %s cannot be read: %s", pod.id, error)
            return ()

    @staticmethod
    def _raise(error: BackendError | None) -> None:
        if error is not None:
            raise error


def _as_planned(job: JobRecord) -> JobRecord:
    """A pod as the planner counts it: bound is on the node, started or not (it holds its GPUs already).

    Restarts of containers in place are no runs of their own: an evicted pod is another pod.
    """
    state = "running" if job.state == "pending" and job.nodes else job.state
    return replace(job, state=state, restarts=0)


def _names_budgets(answer: EvictionAnswer) -> bool:
    return answer.kind is Eviction.PERMANENT and "PodDisruptionBudget" in answer.text
