"""A small cluster in memory: raw objects, the API server's rules that matter to delivery, and what Kubernetes' own
components do.

In come intents and what users do (create, delete, finish a pod); out go views, and a history of every committed change.
A view may lag behind what others did, as a watch does, but never behind the operator's own writes.
Writes meet the same refusals that a real API server has measured to give: preconditions, immutable allocations, gates
that can only be taken off, affinity that can only be narrowed. `settle` runs operator and components until nothing
changes; `crash_after` ends the operator between any two requests.

It knows nothing of how a decision is made.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tests.support.double_use import Change, violations

from adjoin import facts
from adjoin.cache import LINGER_SECONDS, View
from adjoin.environment import read_share
from adjoin.grants import GrantFacts, read_grant, read_labelled_grant
from adjoin.intents import FROM_PREVIOUS, Intent, Kind, Step, Verb
from adjoin.jobs import Rejection, read_hook_pod, read_job
from adjoin.lifecycle import rfc3339

Obj = dict[str, Any]
Key = tuple[Kind, str, str]

START = 1_796_025_600.0
"""2026-11-30T08:00:00Z."""
BUILTIN = "resource.kubernetes.io/delete-protection"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_KINDS = {kind.value.kind: kind for kind in Kind}
_STORED = {Kind.HOOK_POD: Kind.POD, Kind.GRANT: Kind.CONFIG_MAP}
"""Kinds of ours that are some of the objects of a kind of Kubernetes."""


@dataclass(frozen=True)
class Ending:
    """How a hook's pod ends; with `phase` None it runs on."""

    phase: str | None = "Succeeded"
    message: str = ""


class Refusal(Exception):
    """The API server says no; `reason` is its word for it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class Crash(Exception):
    """The operator dies here."""


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


@dataclass
class World:
    """The cluster. `guard_served` and `namespace` are as in a View."""

    guard_served: bool = True
    namespace: str = "adjoin-system"
    now: float = START
    objects: dict[Key, Obj] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)
    writes: list[Step] = field(default_factory=list)
    lingering: dict[str, float] = field(default_factory=dict)
    forced: set[str] = field(default_factory=set)
    """UIDs of pods that were taken away while their containers may have run on."""
    ghosts: dict[str, tuple[float, list[str]]] = field(default_factory=dict)
    """By name of such a pod until when they run on, and with which devices."""
    lagging: bool = False
    """What others do is seen only after `catch_up`."""
    refuse: Callable[[Step], str | None] = lambda step: None
    hook: Callable[[Obj], Ending] = lambda job: Ending()
    """How a hook's attempt ends, asked of its Job while its pod runs."""
    ran: list[Obj] = field(default_factory=list)
    """Hook Jobs whose pods began to run, in order."""
    """Says for a request of the operator with which reason it is refused, if it is."""
    rejections: dict[str, Rejection] = field(default_factory=dict)
    """As the writer tells the cache: hook Jobs that were refused."""
    _revision: int = 1
    _uids: int = 0
    _left: int | None = None
    _refused: bool = False
    _own: bool = False
    _unseen: dict[Key, Obj | None] = field(default_factory=dict)
    """What changed behind the operator's back, as it was before."""
    _met: set[tuple[str, str]] = field(default_factory=set)
    """ConfigMaps that were in the way of one of ours."""
    _gone: dict[str, facts.PodFacts] = field(default_factory=dict)
    _ended: dict[str, Obj] = field(default_factory=dict)
    """By UID the last state of what is gone; the watch tells it with the end."""
    _facts: dict[tuple[str, str], Any] = field(default_factory=dict)

    # Users and set-up

    def add(self, *objects: Obj) -> None:
        """Puts objects there as they are."""
        for obj in objects:
            self._commit(copy.deepcopy(obj))

    def get(self, kind: Kind, name: str, namespace: str = "team") -> Obj | None:
        """The object as it stands, or None."""
        return self.objects.get((kind, namespace if kind.value.namespaced else "", name))

    def all(self, kind: Kind) -> list[Obj]:
        """Objects of a kind, by name."""
        return [obj for (each, _, _), obj in sorted(self.objects.items(), key=lambda item: item[0][1:]) if each is kind]

    def change(self, kind: Kind, name: str, patch: Mapping[str, Any], namespace: str = "team") -> None:
        """A merge patch by a user; a change of spec raises the generation."""
        obj = self.get(kind, name, namespace)
        assert obj is not None, f"no {kind.value.kind} {name}"
        changed = merge(obj, patch)
        if changed.get("spec") != obj.get("spec"):
            changed["metadata"]["generation"] = obj["metadata"].get("generation", 1) + 1
        self._commit(changed)

    def delete(self, kind: Kind, name: str, namespace: str = "team", *, force: bool = False) -> None:
        """A user deletes; `force` takes a running pod away at once."""
        obj = self.get(kind, name, namespace)
        assert obj is not None, f"no {kind.value.kind} {name}"
        self._delete(kind, obj, force=force)

    def finish(self, name: str, namespace: str = "team", phase: str = "Succeeded") -> None:
        """A pod ends by itself."""
        patch = {"status": {"phase": phase, "containerStatuses": [{"name": "main", "state": {"terminated": {}}}]}}
        self.change(Kind.POD, name, patch, namespace)

    # What the operator sees and does

    def view(self, busy: Iterable[str] = ()) -> View:
        """Everything there is, as facts; those of an object that did not change are the same as before."""

        def read(kind: Kind, reader: Callable[[Obj], Any], by: str = "uid") -> Mapping[str, Any]:
            found = {}
            for obj in self._visible(kind):
                key = (kind.name + obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])
                if key not in self._facts:
                    self._facts[key] = reader(obj)
                if self._facts[key] is not None:
                    found[getattr(self._facts[key].meta, by)] = self._facts[key]
            return MappingProxyType(found)

        return View(
            claims=read(Kind.DEVICE_CLAIM, facts.read_claim),
            pools=read(Kind.DEVICE_POOL, facts.read_pool),
            pods=read(Kind.POD, facts.read_pod),
            resource_claims=read(Kind.RESOURCE_CLAIM, facts.read_resource_claim),
            slices=read(Kind.RESOURCE_SLICE, facts.read_slice),
            nodes=read(Kind.NODE, facts.read_node, "name"),
            taint_rules=read(Kind.TAINT_RULE, facts.read_taint_rule),
            config_maps=read(Kind.CONFIG_MAP, facts.read_config_map),
            guard_served=self.guard_served,
            busy=frozenset(busy),
            lingering={uid: until for uid, until in self.lingering.items() if until > self.now},
            namespace=self.namespace,
            ghosts={uid: pod for uid, pod in self._gone.items() if self.lingering[uid] > self.now},
            forced=dict(self.lingering),
            jobs=read(Kind.JOB, read_job),
            hook_pods=read(Kind.HOOK_POD, read_hook_pod),
            grants=read(Kind.GRANT, self._read_grant),
            shares=read(Kind.DEVICE_SHARE, read_share),
            rejections=dict(self.rejections),
        )

    def _read_grant(self, obj: Obj) -> GrantFacts | None:
        """The watch tells of those with our label, the writer's own look of any other that it met."""
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        return read_grant(obj) if key in self._met else read_labelled_grant(obj)

    def _visible(self, kind: Kind) -> list[Obj]:
        kind = _STORED.get(kind, kind)
        keys = {*self.objects, *self._unseen}
        seen = {key: self._unseen.get(key, self.objects.get(key)) for key in keys if key[0] is kind}
        return [obj for _, obj in sorted(seen.items(), key=lambda item: item[0][1:]) if obj is not None]

    def catch_up(self, which: Callable[[], bool] = lambda: True) -> None:
        """The watches deliver what others did; `which` is asked for each changed object whether it does now."""
        for key in [key for key in self._unseen if which()]:
            before = self._unseen.pop(key)
            now = self.objects.get(key)
            if before is not None and (now is None or now["metadata"]["uid"] != before["metadata"]["uid"]):
                self._notice_end(key[0], self._ended.get(before["metadata"]["uid"], before))

    def _notice_end(self, kind: Kind, last: Obj) -> None:
        running = (last.get("status") or {}).get("phase") == "Running"
        if kind is Kind.POD and running and last["spec"].get("nodeName") and last["metadata"]["uid"] in self.forced:
            pod = facts.read_pod(last)
            assert pod is not None
            self.lingering[pod.meta.uid] = self.now + LINGER_SECONDS
            self._gone[pod.meta.uid] = pod

    def carry_out(self, intents: Iterable[Intent]) -> int:
        """Performs intents as the writer does: steps in order, each intent until its first refusal. Returns how many
        requests succeeded."""
        done = 0
        for intent in sorted(intents, key=lambda intent: intent.order):
            previous: Obj | None = None
            for step in intent.steps:
                if self._left is not None:
                    if self._left == 0:
                        raise Crash
                    self._left -= 1
                try:
                    self._own = True
                    previous = self.perform(step, previous)
                    done += 1
                except Refusal as refusal:
                    if step.kind is Kind.EVENT:
                        continue
                    self._refused = True
                    if refusal.reason == "NotFound" and step.verb in (Verb.DELETE, Verb.EVICT):
                        continue
                    if (
                        step.kind is Kind.JOB
                        and step.verb is Verb.CREATE
                        and refusal.reason in ("Invalid", "Forbidden")
                    ):
                        self.rejections[step.name] = Rejection(str(refusal), refusal.reason == "Invalid")
                        continue
                    if refusal.reason == "Invalid":
                        raise AssertionError(f"{intent.why}: {step} is invalid: {refusal}") from refusal
                    # The writer looks at the object.
                    self._unseen.pop((_STORED.get(step.kind, step.kind), step.namespace, step.name), None)
                    break
                finally:
                    self._own = False
        return done

    def perform(self, step: Step, previous: Obj | None = None) -> Obj:
        """One request of the operator."""
        reason = self.refuse(step)
        if reason:
            raise Refusal(reason, "injected")
        uid, version = step.uid, step.version
        if version == FROM_PREVIOUS:
            assert previous is not None, "FROM_PREVIOUS without a step before"
            uid = uid or previous["metadata"]["uid"]
            version = int(previous["metadata"]["resourceVersion"])
        key = (_STORED.get(step.kind, step.kind), step.namespace, step.name)
        found = self.objects.get(key)
        _assert_ours(step, found)
        if step.verb is Verb.CREATE:
            assert step.body is not None
            if found is not None:
                if step.kind is Kind.GRANT:
                    self._met.add((step.namespace, step.name))
                    for known in [each for each in self._facts if each[0] == step.kind.name + found["metadata"]["uid"]]:
                        del self._facts[known]
                raise Refusal("AlreadyExists", step.name)
            obj = copy.deepcopy(dict(step.body))
            obj.pop("status", None)
            self._uids += 1
            obj["metadata"] |= {"uid": f"made-{self._uids}", "generation": 1, "creationTimestamp": self._time()}
            self.writes.append(step)
            return self._commit(obj)
        if found is None:
            raise Refusal("NotFound", step.name)
        meta = found["metadata"]
        if (uid and meta["uid"] != uid) or (version and int(meta["resourceVersion"]) != version):
            raise Refusal("Conflict", step.name)
        self.writes.append(step)
        if step.verb in (Verb.DELETE, Verb.EVICT):
            return self._delete(key[0], found, policy=(step.body or {}).get("propagationPolicy", "Background"))
        assert step.body is not None
        if step.verb is Verb.PATCH_STATUS:
            assert set(step.body) == {"status"}, step.body
            changed = merge(found, step.body)
        else:
            changed = merge({key: value for key, value in found.items() if key != "status"}, step.body)
            if "status" in found:
                changed["status"] = copy.deepcopy(found["status"])
        self._admit(step.kind, found, changed)
        return self._commit(changed)

    # The API server

    def _time(self) -> str:
        return rfc3339(self.now)

    def _commit(self, obj: Obj) -> Obj:
        """Stores an object. What is stored is never changed in place, so that it can be handed out and shared."""
        kind = _KINDS[obj["kind"]]
        meta = dict(obj["metadata"])
        obj = {**obj, "metadata": meta}
        key = (kind, meta.get("namespace", "") if kind.value.namespaced else "", meta["name"])
        before = self.objects.get(key)
        if before is not None and before == obj:
            return before
        self._revision += 1
        meta["resourceVersion"] = str(self._revision)
        gone = bool(meta.get("deletionTimestamp")) and not meta.get("finalizers") and not self._graceful(kind, obj)
        self._put(key, None if gone else obj)
        grant = kind is Kind.CONFIG_MAP and "adjoin.dev/pod" in (meta.get("labels") or {})
        if kind in (Kind.DEVICE_CLAIM, Kind.RESOURCE_CLAIM) or grant:
            self.history.append(Change(self._revision, obj["kind"], gone, obj))
        return obj

    def _put(self, key: Key, obj: Obj | None) -> None:
        before = self.objects.get(key)
        if self._own:
            self._unseen.pop(key, None)
        elif self.lagging:
            self._unseen.setdefault(key, before)
        elif before is not None and obj is None:
            self._notice_end(key[0], before)
        if obj is None:
            if before is not None:
                self._ended[before["metadata"]["uid"]] = before
            self.objects.pop(key, None)
        else:
            self.objects[key] = obj

    @staticmethod
    def _graceful(kind: Kind, obj: Obj) -> bool:
        bound = bool((obj.get("spec") or {}).get("nodeName"))
        ended = (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        return kind is Kind.POD and bound and not ended

    def _delete(self, kind: Kind, obj: Obj, *, force: bool = False, policy: str = "Background") -> Obj:
        changed = copy.deepcopy(obj)
        meta = changed["metadata"]
        meta.setdefault("deletionTimestamp", self._time())
        if policy == "Foreground":
            meta["finalizers"] = [*(meta.get("finalizers") or ()), "foregroundDeletion"]
        if force:
            self.forced.add(meta["uid"])
            if (changed.get("status") or {}).get("phase") == "Running":
                self.ghosts[meta["name"]] = (self.now + LINGER_SECONDS, self._devices_of(changed))
            self._put((kind, meta.get("namespace", ""), meta["name"]), None)
            self._revision += 1
            return changed
        return self._commit(changed)

    def _admit(self, kind: Kind, old: Obj, new: Obj) -> None:
        if kind is Kind.RESOURCE_CLAIM:
            before, after = old.get("status") or {}, new.get("status") or {}
            if before.get("allocation") and after.get("allocation") and before["allocation"] != after["allocation"]:
                raise Refusal("Invalid", "status.allocation: field is immutable")
            if after.get("reservedFor") and not after.get("allocation"):
                raise Refusal("Invalid", "status.reservedFor: only while allocated")
            added = [each for each in after.get("reservedFor") or () if each not in (before.get("reservedFor") or ())]
            if added and old["metadata"].get("deletionTimestamp"):
                raise Refusal("Invalid", "status.reservedFor: no new entries while being deleted")
            known = {request["name"] for request in new["spec"]["devices"]["requests"]}
            results = ((after.get("allocation") or {}).get("devices") or {}).get("results") or ()
            if len(results) > 32 or any(result["request"] not in known for result in results):
                raise Refusal("Invalid", "status.allocation.devices.results")
            if after.get("allocation") and not after["allocation"].get("allocationTimestamp"):
                raise Refusal("Invalid", "without allocationTimestamp no pod would ever bind")
        if kind is Kind.POD:
            gates = [gate["name"] for gate in old["spec"].get("schedulingGates") or ()]
            left = [gate["name"] for gate in new["spec"].get("schedulingGates") or ()]
            if not set(left) <= set(gates):
                raise Refusal("Invalid", "spec.schedulingGates: only deletion is allowed")
            if not gates and new["spec"] != old["spec"]:
                raise Refusal("Invalid", "spec: immutable once the pod has no gates")
            if not _narrower(_terms(old), _terms(new)):
                raise Refusal("Invalid", "spec.affinity: only additions are allowed")
        if kind is Kind.CONFIG_MAP and old.get("immutable") and old.get("data") != new.get("data"):
            raise Refusal("Invalid", "data: field is immutable")
        added_finalizers = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
        if new["metadata"].get("deletionTimestamp") and added_finalizers:
            raise Refusal("Invalid", "metadata.finalizers: no new finalizers while being deleted")

    # Kubernetes' own components

    def kubernetes(self) -> None:
        """One round of garbage collector, kube-controller-manager, kube-scheduler and kubelet."""
        self._collect()
        self._work()
        self._release_resource_claims()
        self._schedule()
        self._run()

    def _collect(self) -> None:
        living = {obj["metadata"]["uid"] for obj in self.objects.values()}
        for (kind, _, _), obj in list(self.objects.items()):
            owners = obj["metadata"].get("ownerReferences") or ()
            if owners and not any(owner["uid"] in living for owner in owners):
                self._delete(kind, obj)

    def _work(self) -> None:
        """The Job controller."""
        for job in self.all(Kind.JOB):
            meta, status = job["metadata"], job.get("status") or {}
            pods = [pod for pod in self.all(Kind.POD) if self._made_by(pod, meta["uid"])]
            if meta.get("deletionTimestamp"):
                if "foregroundDeletion" in (meta.get("finalizers") or ()):
                    for pod in pods:
                        if not pod["metadata"].get("deletionTimestamp"):
                            self._delete(Kind.POD, pod)
                    if not pods:
                        left = [each for each in meta["finalizers"] if each != "foregroundDeletion"]
                        self._commit({**job, "metadata": {**meta, "finalizers": left}})
                continue
            if status.get("conditions"):
                continue
            if not pods:
                self._uids += 1
                template = copy.deepcopy(job["spec"]["template"])
                owner = {"kind": "Job", "apiVersion": "batch/v1", "name": meta["name"], "uid": meta["uid"]}
                self._commit(
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "metadata": {
                            **template["metadata"],
                            "name": f"{meta['name']}-{self._uids}",
                            "namespace": meta["namespace"],
                            "uid": f"hook-pod-{self._uids}",
                            "creationTimestamp": self._time(),
                            "ownerReferences": [{**owner, "controller": True}],
                        },
                        "spec": template["spec"],
                        "status": {"phase": "Pending"},
                    }
                )
                continue
            phase = pods[0]["status"].get("phase")
            if phase in ("Succeeded", "Failed"):
                kind = "Complete" if phase == "Succeeded" else "Failed"
                condition = {"type": kind, "status": "True", "lastTransitionTime": self._time()}
                self._commit({**job, "status": {"conditions": [condition]}})

    @staticmethod
    def _made_by(pod: Obj, uid: str) -> bool:
        return any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or ())

    def _end_hooks(self, pod: Obj) -> None:
        """A hook's pod that runs: it ends as `hook` says."""
        owners = {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
        job = next((job for job in self.all(Kind.JOB) if job["metadata"]["uid"] in owners), None)
        if job is None:
            return
        ending = self.hook(job)
        if ending.phase is not None:
            code = 0 if ending.phase == "Succeeded" else 1
            state = {"terminated": {"exitCode": code, "message": ending.message}}
            patch = {"status": {"phase": ending.phase, "containerStatuses": [{"name": "main", "state": state}]}}
            self.change(Kind.POD, pod["metadata"]["name"], patch, pod["metadata"]["namespace"])

    def _release_resource_claims(self) -> None:
        pods = {obj["metadata"]["uid"]: obj for obj in self.all(Kind.POD)}
        for obj in self.all(Kind.RESOURCE_CLAIM):
            if not obj["metadata"].get("deletionTimestamp") and not (obj.get("status") or {}).get("reservedFor"):
                continue
            changed = copy.deepcopy(obj)
            meta, status = changed["metadata"], changed.get("status") or {}
            reserved = status.get("reservedFor") or []
            kept = [
                each
                for each in reserved
                if each["uid"] in pods and pods[each["uid"]]["status"].get("phase") not in ("Succeeded", "Failed")
            ]
            builtin = BUILTIN in (meta.get("finalizers") or ())
            if kept != reserved:
                status["reservedFor"] = kept
                if not kept and builtin:
                    status.pop("allocation", None)
            if not kept:
                status.pop("reservedFor", None)
            if builtin and not kept and meta.get("deletionTimestamp"):
                status.pop("allocation", None)
                meta["finalizers"] = [each for each in meta["finalizers"] if each != BUILTIN]
            self._commit(changed)

    def _schedule(self) -> None:
        for obj in self.all(Kind.POD):
            spec, meta = obj["spec"], obj["metadata"]
            if spec.get("schedulingGates") or spec.get("nodeName") or meta.get("deletionTimestamp"):
                continue
            claims = [
                self.get(Kind.RESOURCE_CLAIM, entry["resourceClaimName"], meta["namespace"])
                for entry in spec.get("resourceClaims") or ()
            ]
            if any(claim is None or claim["metadata"].get("deletionTimestamp") for claim in claims):
                continue
            if any(not (claim or {}).get("status", {}).get("allocation") for claim in claims):
                continue
            nodes = {
                node
                for term in _terms(obj)
                for requirement in term.get("matchFields") or ()
                for node in requirement["values"]
            }
            assert len(nodes) == 1, f"pod {meta['name']} is not pinned to one node: {nodes}"
            node = nodes.pop()
            found = self.get(Kind.NODE, node)
            if found is None or found["status"]["conditions"][0]["status"] != "True":
                continue
            for claim in claims:
                assert claim is not None
                reserved = list(claim["status"].get("reservedFor") or ())
                if not any(each["uid"] == meta["uid"] for each in reserved):
                    reserved.append({"resource": "pods", "name": meta["name"], "uid": meta["uid"]})
                    self._commit({**claim, "status": {**claim["status"], "reservedFor": reserved}})
            self.change(Kind.POD, meta["name"], {"spec": {"nodeName": node}}, meta["namespace"])

    def _run(self) -> None:
        for obj in self.all(Kind.POD):
            meta = obj["metadata"]
            if not self._graceful(Kind.POD, obj):
                continue
            if meta.get("deletionTimestamp"):
                self._put((Kind.POD, meta["namespace"], meta["name"]), None)
                self._revision += 1
            elif any(self.get(Kind.CONFIG_MAP, name, meta["namespace"]) is None for name in self._grants_of(obj)):
                continue  # CreateContainerConfigError
            elif obj["status"].get("phase") == "Pending":
                running = {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
                self.change(Kind.POD, meta["name"], {"status": running}, meta["namespace"])
                self.ran += [job for job in self.all(Kind.JOB) if self._made_by(obj, job["metadata"]["uid"])]
            elif "adjoin.dev/hook" in (meta.get("labels") or {}):
                self._end_hooks(obj)

    # Time

    def crash_after(self, requests: int | None) -> None:
        """The operator dies before its next request after so many; None: it lives."""
        self._left = requests

    def settle(self, make: Callable[[], Any], *, rounds: int = 60, check: Callable[[World], None] | None = None) -> int:
        """Runs operator and components until nothing changes any more; after a crash with a fresh operator. Returns the
        rounds it took."""
        decider = make()
        for number in range(rounds):
            self.catch_up()
            before, crashed, self._refused = self._revision, False, False
            decision = decider.decide(self.view(), self.now)
            try:
                self.carry_out(decision.intents)
            except Crash:
                crashed = True
                self.crash_after(None)
                decider = make()
            self.verify()
            if check is not None:
                check(self)
            self.kubernetes()
            self.verify()
            if self._revision == before and not crashed and not self._refused and not self._unseen:
                if decision.wake_at is None or decision.wake_at <= self.now:
                    assert not violations(self.history), violations(self.history)
                    return number
                self.now = decision.wake_at
            else:
                self.now += 1.0
        raise AssertionError(f"still changing after {rounds} rounds")

    def verify(self) -> None:
        """What must hold now; the history is looked at in the end."""
        holders = {
            device["device"] + "/" + device["pool"]: claim["metadata"]["uid"]
            for claim in self.all(Kind.DEVICE_CLAIM)
            for replica in ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or ()
            for device in replica["devices"]
        }
        parts = {
            device["device"] + "/" + device["pool"]
            for claim in self.all(Kind.DEVICE_CLAIM)
            for replica in ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or ()
            for device in replica["devices"]
            if device.get("share")
        }
        users = {
            device: name for name, (until, devices) in self.ghosts.items() if until > self.now for device in devices
        }
        for obj in self.all(Kind.POD):
            if obj["spec"].get("schedulingGates") or obj["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            name = obj["metadata"]["name"]
            for device in self._devices_of(obj):
                if device in parts:
                    continue
                assert device not in users, f"{device} serves pods {users[device]} and {name}"
                hooks = "adjoin.dev/hook" in (obj["metadata"].get("labels") or {})
                assert hooks or device in holders, f"{device} serves pod {name} but no DeviceClaim holds it"
                users[device] = name

    def _grants_of(self, pod: Obj) -> set[str]:
        """ConfigMaps of ours that the pod's containers need before they start."""
        references = [
            reference
            for group in ("initContainers", "containers")
            for container in pod["spec"].get(group) or ()
            for entry in container.get("env") or ()
            if (reference := (entry.get("valueFrom") or {}).get("configMapKeyRef")) and not reference.get("optional")
        ]
        return {each["name"] for each in references if each["name"].startswith("adjoin-")}

    def environment(self, pod: Obj, container: str = "main") -> dict[str, str]:
        """The environment that the kubelet would start a container with."""
        found = {}
        everybody = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
        for entry in next(each for each in everybody if each["name"] == container).get("env") or ():
            reference = (entry.get("valueFrom") or {}).get("configMapKeyRef")
            if reference is None:
                found[entry["name"]] = entry.get("value", "")
                continue
            config_map = self.get(Kind.CONFIG_MAP, reference["name"], pod["metadata"]["namespace"]) or {}
            if reference["key"] in config_map.get("data", {}):
                found[entry["name"]] = config_map["data"][reference["key"]]
            else:
                assert reference.get("optional"), f"{pod['metadata']['name']} cannot start: {reference} is missing"
        return found

    def _devices_of(self, pod: Obj) -> list[str]:
        """Devices that the pod's ResourceClaims, or its ConfigMap, give it."""
        devices = []
        for name in self._grants_of(pod):
            config_map = self.get(Kind.CONFIG_MAP, name, pod["metadata"]["namespace"]) or {}
            listed = json.loads(config_map.get("data", {}).get("ADJOIN_DEVICES", "[]"))
            devices += [f"{each['device']}/{each['pool']}" for each in listed]
        for entry in pod["spec"].get("resourceClaims") or ():
            claim = self.get(Kind.RESOURCE_CLAIM, entry["resourceClaimName"], pod["metadata"]["namespace"]) or {}
            allocation = (claim.get("status") or {}).get("allocation") or {}
            results = (allocation.get("devices") or {}).get("results") or ()
            devices += [f"{result['device']}/{result['pool']}" for result in results]
        return devices


def _assert_ours(step: Step, found: Obj | None) -> None:
    """Specs, foreign objects and foreign parts of objects are never written, whatever the answer would be."""
    body = step.body or {}
    own = (Kind.DEVICE_CLAIM, Kind.DEVICE_POOL, Kind.DEVICE_SHARE, Kind.RESOURCE_CLAIM, Kind.GRANT)
    if step.verb is Verb.PATCH and step.kind in own:
        assert set(body) == {"metadata"}, step
        if step.kind is not Kind.DEVICE_POOL or "annotations" not in body["metadata"]:
            assert set(body["metadata"]) == {"finalizers"}, step
        else:
            assert body["metadata"] == {"annotations": {"adjoin.dev/release-quarantine": None}}, step
    elif step.verb is Verb.PATCH and step.kind is Kind.JOB:
        assert set(body) == {"metadata"}, step
        assert set(body["metadata"]) == {"finalizers"}, step
    elif step.verb is Verb.PATCH:
        assert step.kind is Kind.POD, step
        assert set(body) <= {"spec", "metadata"}, step
        assert set(body["spec"]) <= {"schedulingGates", "affinity"}, step
        if "metadata" in body:
            assert set(body["metadata"]) == {"annotations"}, step
            assert set(body["metadata"]["annotations"]) == {"k8s.v1.cni.cncf.io/networks"}, step
    elif step.verb is Verb.PATCH_STATUS:
        assert step.kind in own[:4], step
    if step.verb is not Verb.CREATE:
        assert step.uid or step.version == FROM_PREVIOUS, f"{step} has no precondition"
    if found is None or step.verb is Verb.CREATE:
        return
    meta = found["metadata"]
    owners = {owner["kind"] for owner in meta.get("ownerReferences") or ()}
    match step.kind:
        case Kind.RESOURCE_CLAIM:
            assert owners & {"DeviceClaim", "DevicePool"}, f"{step} is not ours"
        case Kind.GRANT:
            assert "DeviceClaim" in owners, f"{step} is not ours"
        case Kind.JOB:
            assert "adjoin.dev/hook" in meta["labels"], f"{step} is not ours"
        case Kind.POD:
            assert "adjoin.dev/claim" in meta["labels"], f"{step} names no claim"
        case Kind.TAINT_RULE:
            assert "adjoin.dev/guards-pool" in meta["labels"], f"{step} is not ours"


def _terms(pod: Mapping[str, Any]) -> list[Obj]:
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return list((affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ())


def _narrower(old: list[Obj], new: list[Obj]) -> bool:
    """Kubernetes' rule for gated pods: terms can be added where there were none, and requirements to each term that has
    one."""
    if not old:
        return True
    if len(old) != len(new):
        return False
    for before, after in zip(old, new, strict=True):
        empty = not before.get("matchExpressions") and not before.get("matchFields")
        if empty and before != after:
            return False
        for key in ("matchExpressions", "matchFields"):
            if any(each not in (after.get(key) or ()) for each in before.get(key) or ()):
                return False
    return True
