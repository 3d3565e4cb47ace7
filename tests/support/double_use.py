"""Was a device ever in two hands? Replays everything that a watcher of the API server could have seen.

`Recorder` watches DeviceClaims, ResourceClaims and pods' ConfigMaps from a start on, in threads, with nothing of the
project's own code between it and the server. `violations()` puts all events in the order in which the server committed
them and checks every instant in between:

- a device stands in the status of at most one DeviceClaim, or in several as parts of one DeviceShare;
- a device is in the allocation of at most one ResourceClaim (adminAccess left out) or in one pod's ConfigMap, and if a
  DeviceClaim holds the device then that is owned by that very DeviceClaim, by UID;
- a DeviceClaim never names one device twice.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tests.controlplane.client import ApiFailure
from tests.controlplane.server import ControlPlane

CLAIMS = "/apis/adjoin.dev/v1alpha1/deviceclaims"
RESOURCE_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
CONFIG_MAPS = "/api/v1/configmaps?labelSelector=adjoin.dev/pod"
"""Those that hand devices to pods."""
Device = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """One committed change: `gone` is set when the object was deleted."""

    revision: int
    kind: str
    gone: bool
    obj: Mapping[str, Any]


@dataclass
class Recorder:
    """Context manager: records from the moment it is entered. `changes` grows while it runs.

    With `afterwards` it only notes that moment, and `catch_up` reads what happened since: the watch then costs nothing
    while something is measured. The API server remembers 75 s; beyond that `violations` says that history is lost.
    """

    KINDS: ClassVar[Mapping[str, str]] = {
        "DeviceClaim": CLAIMS,
        "ResourceClaim": RESOURCE_CLAIMS,
        "ConfigMap": CONFIG_MAPS,
    }
    """What is watched: kinds with their paths."""

    plane: ControlPlane
    afterwards: bool = False
    changes: list[Change] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _seen: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _broken: list[str] = field(default_factory=list)

    def __enter__(self) -> Recorder:
        for kind, path in self.KINDS.items():
            listed = self.plane.request("GET", path)
            self._note(kind, False, listed["items"])
            version = listed["metadata"]["resourceVersion"]
            self._threads.append(
                threading.Thread(target=self._follow, args=(kind, path, version), daemon=True, name=f"watch {kind}")
            )
        if not self.afterwards:
            self._start()
        return self

    def _start(self) -> None:
        for thread in self._threads:
            if thread.ident is None:
                thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(10)

    def _note(self, kind: str, gone: bool, objects: Iterable[Mapping[str, Any]]) -> None:
        for obj in objects:
            revision = int(obj["metadata"]["resourceVersion"])
            self._seen[kind] = max(self._seen[kind], revision)
            self.changes.append(Change(revision, kind, gone, obj))

    def _follow(self, kind: str, path: str, version: str) -> None:
        while not self._stop.is_set():
            try:
                version = self._watch_once(kind, path, version)
            except (OSError, HTTPException, ApiFailure):
                # The API server is away or was killed; its history is not: the watch goes on where it was.
                self._stop.wait(0.2)
            except ValueError as error:
                self._broken.append(f"{kind}: {error}")
                return

    def _watch_once(self, kind: str, path: str, version: str) -> str:
        connection = HTTPSConnection(urlsplit(self.plane.url).netloc, timeout=5, context=self.plane.ssl_context)
        try:
            connection.request(
                "GET",
                f"{path}{'&' if '?' in path else '?'}watch=1&allowWatchBookmarks=true&resourceVersion={version}"
                "&timeoutSeconds=300",
            )
            response = connection.getresponse()
            if response.status != 200:
                raise ConnectionError(f"watch of {kind} answered {response.status}")
            while not self._stop.is_set():
                try:
                    line = response.readline()
                except TimeoutError:
                    return version
                if not line:
                    return version
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ValueError(f"watch ended: {event['object']}")
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._note(kind, event["type"] == "DELETED", [event["object"]])
            return version
        finally:
            connection.close()

    def catch_up(self, seconds: float = 10.0) -> None:
        """Waits until everything committed up to now was seen."""
        self._start()
        wanted = {}
        for kind, path in self.KINDS.items():
            items = self.plane.request("GET", path)["items"]
            wanted[kind] = max((int(item["metadata"]["resourceVersion"]) for item in items), default=0)
        waited = threading.Event()
        for _ in range(int(seconds / 0.05)):
            if all(self._seen[kind] >= revision for kind, revision in wanted.items()):
                return
            waited.wait(0.05)
        raise AssertionError(f"the recorder did not catch up: wanted {wanted}, has {dict(self._seen)}")

    def violations(self) -> list[str]:
        """Every instant at which a device was in two hands, in words; empty when there was none."""
        return [*self._broken, *violations(self.changes)]


def held(claim: Mapping[str, Any], *, whole: bool | None = None, state: str = "") -> list[Device]:
    """Devices in the status of a DeviceClaim; only those that it has whole, or only parts; only of replicas in a
    state."""
    replicas = ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or []
    return [
        (d["driver"], d["pool"], d["device"])
        for replica in replicas
        for d in replica.get("devices") or []
        if (whole is None or whole is not bool(d.get("share"))) and state in ("", replica.get("state"))
    ]


def _shares(claim: Mapping[str, Any]) -> dict[Device, str]:
    """DeviceShares out of which it has parts, by device."""
    replicas = ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or []
    return {
        (d["driver"], d["pool"], d["device"]): str(d["share"]["name"])
        for replica in replicas
        for d in replica.get("devices") or []
        if d.get("share")
    }


def allocated(claim: Mapping[str, Any]) -> list[Device]:
    """Devices in the allocation of a ResourceClaim that exclude others; those in the list of a pod's ConfigMap."""
    if "data" in claim:
        return [(d["driver"], d["pool"], d["device"]) for d in json.loads(claim["data"].get("ADJOIN_DEVICES") or "[]")]
    results = (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or []
    # Of a device that may be in several allocations each share is one: what they consume together is the tests' to see.
    return [
        (r["driver"], r["pool"], f"{r['device']}#{r['shareID']}" if r.get("shareID") else r["device"])
        for r in results
        if not r.get("adminAccess")
    ]


def _owner(claim: Mapping[str, Any]) -> str:
    """UID of the DeviceClaim whose devices a ResourceClaim has: its owner, or of a hook's the claim that it works
    for."""
    meta = claim["metadata"]
    if "adjoin.dev/hook" in (meta.get("labels") or {}):
        return str(json.loads((meta.get("annotations") or {}).get("adjoin.dev/run") or "{}").get("subject") or "")
    return next((o["uid"] for o in meta.get("ownerReferences") or [] if o["kind"] == "DeviceClaim"), "")


def violations(changes: Iterable[Change]) -> list[str]:
    """The check over recorded changes, in whatever order they were noted."""
    found: list[str] = []
    # By device: who holds it (UID → name), and what gives it to pods (UID → name and owner).
    holders: dict[Device, dict[str, str]] = defaultdict(dict)
    givers: dict[Device, dict[str, tuple[str, str]]] = defaultdict(dict)
    before: dict[tuple[str, str], list[Device]] = {}
    # By device and UID of the claim out of which share it has a part.
    parts: dict[Device, dict[str, str]] = defaultdict(dict)
    # Claims that nothing was done for yet: hooks may still return the device to whole for them.
    untouched: dict[Device, set[str]] = defaultdict(set)
    for change in sorted(changes, key=lambda c: c.revision):
        if change.kind not in ("DeviceClaim", "ResourceClaim"):
            continue
        meta = change.obj["metadata"]
        uid, name = meta["uid"], f"{meta['namespace']}/{meta['name']}"
        for device in before.pop((change.kind, uid), []):
            (holders if change.kind == "DeviceClaim" else givers)[device].pop(uid, None)
            if change.kind == "DeviceClaim":
                parts[device].pop(uid, None)
                untouched[device].discard(uid)
        if change.gone:
            continue
        devices = held(change.obj) if change.kind == "DeviceClaim" else allocated(change.obj)
        before[change.kind, uid] = devices
        for device in devices:
            if change.kind == "DeviceClaim":
                holders[device][uid] = name
            else:
                givers[device][uid] = (name, _owner(change.obj))
        at = f"revision {change.revision}"
        if change.kind == "DeviceClaim":
            for device, share in _shares(change.obj).items():
                parts[device][uid] = share
            for device in held(change.obj, state="Allocated"):
                untouched[device].add(uid)
            devices = held(change.obj, whole=True)
            found += [
                f"{at}: DeviceClaim {name} names {device} twice"
                for device in sorted(set(devices))
                if devices.count(device) > 1
            ]
        for device in before[change.kind, uid]:
            shared = len({parts[device].get(each, "") for each in holders[device]}) == 1 and bool(parts[device])
            if len(holders[device]) > 1 and not shared:
                found.append(f"{at}: {device} is held by DeviceClaims {sorted(holders[device].values())}")
            if len(givers[device]) > 1:
                found.append(f"{at}: {device} is in ResourceClaims {sorted(by for by, _ in givers[device].values())}")
            for by, owner in givers[device].values():
                if shared and owner in holders[device]:
                    continue
                waiting = untouched[device] if owner and owner not in holders[device] else ()
                strangers = sorted(
                    held_by for uid, held_by in holders[device].items() if uid != owner and uid not in waiting
                )
                if strangers:
                    found.append(f"{at}: {device} is in ResourceClaim {by} but held by {strangers}")
    return found
