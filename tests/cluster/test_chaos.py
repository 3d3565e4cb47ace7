"""Everything at once on a real control plane: claims, gangs and pods come and go, nodes are started anew or vanish,
hooks fail, the API server answers badly, operators are killed. Whatever happens, no device is in two hands or reused
before its cleanup, and in the end nothing is left and nothing is written.

The seed is printed. ADJOIN_CHAOS_SECONDS and ADJOIN_CHAOS_SEED make a longer run, or the same one again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from tests.controlplane import ControlPlane, Options
from tests.controlplane import kubeconfig as configs
from tests.controlplane.client import ApiFailure
from tests.support import hardware
from tests.support.double_use import Change, Recorder
from tests.support.faultproxy import FaultProxy
from tests.support.installation import ACCOUNT, NAMESPACE, USERNAME, Installation, installed
from tests.support.site import Site, pod
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1800)]

SECONDS = float(os.environ.get("ADJOIN_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("ADJOIN_CHAOS_SEED", "0")) or int(time.time())
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
HOOK_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=adjoin.dev/hook"
NODES = "/api/v1/nodes"
Obj = dict[str, Any]
TEMPLATE = {
    "spec": {
        "containers": [{"name": "main", "image": "registry.test/hook:1"}],
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
    }
}
QUIET_SECONDS = 20.0


class Watcher(Recorder):
    """Also records Jobs and Nodes."""

    KINDS: ClassVar = {**Recorder.KINDS, "Job": JOBS, "Node": NODES}


@dataclass
class Hold:
    """A claim's hold on one device."""

    claim: str
    node: str
    since: int
    prepared: bool = False


def unclean(changes: list[Change]) -> list[str]:
    """Devices that somebody got although the claim before had prepared or used them and no cleanup had succeeded since,
    nor was their node gone."""
    found: list[str] = []
    holds: dict[tuple[str, str, str], Hold] = {}
    dirty: dict[tuple[str, str, str], Hold] = {}
    cleaned: dict[tuple[str, str, str], int] = defaultdict(int)
    gone: dict[str, int] = defaultdict(int)
    for change in sorted(changes, key=lambda each: each.revision):
        if change.kind == "Node" and change.gone:
            gone[change.obj["metadata"]["name"]] = change.revision
        if change.kind == "Job":
            for device in _cleaned(change.obj):
                cleaned[device] = max(cleaned[device], change.revision)
        if change.kind != "DeviceClaim":
            continue
        uid = change.obj["metadata"]["uid"]
        now = {} if change.gone else _entries(change.obj)
        for device, hold in list(holds.items()):
            if hold.claim == uid and device not in now:
                del holds[device]
                if hold.prepared:
                    dirty[device] = hold
        for device, (node, prepared) in now.items():
            known = holds.get(device)
            if known is None or known.claim != uid:
                before = dirty.pop(device, None)
                if before is not None and max(cleaned[device], gone[before.node]) < before.since:
                    found.append(
                        f"revision {change.revision}: {device} was not cleaned since claim {before.claim} had it"
                    )
                holds[device] = Hold(uid, node, change.revision, prepared)
            else:
                known.prepared |= prepared
    return found


def _entries(claim: Obj) -> dict[tuple[str, str, str], tuple[str, bool]]:
    found = {}
    for replica in ((claim.get("status") or {}).get("allocation") or {}).get("replicas") or ():
        prepared = bool(replica.get("readyAt") or replica.get("hooks"))
        for device in replica.get("devices") or ():
            found[device["driver"], device["pool"], device["device"]] = (replica["node"], prepared)
    return found


def _cleaned(job: Obj) -> list[tuple[str, str, str]]:
    """Devices that a Job says are clean."""
    if (job["metadata"].get("labels") or {}).get("adjoin.dev/hook") != "cleanup":
        return []
    conditions = (job.get("status") or {}).get("conditions") or ()
    if not any(each["type"] == "Complete" and each["status"] == "True" for each in conditions):
        return []
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    devices = json.loads(next(each["value"] for each in env if each["name"] == "ADJOIN_DEVICES"))
    return [(each["driver"], each["pool"], each["device"]) for each in devices]


@dataclass
class Chaos:
    """What happens, by chance."""

    site: Site
    proxy: FaultProxy
    installation: Installation
    machines: list[str]
    random: random.Random
    number: int = 0
    log: list[str] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)

    def note(self, what: str) -> None:
        self.log.append(f"{datetime.now(UTC):%H:%M:%S} {what}")

    def some(self, kind: str) -> str | None:
        names = [
            each["metadata"]["name"] for each in self.site.all(kind) if not each["metadata"].get("deletionTimestamp")
        ]
        return self.random.choice(names) if names else None

    def step(self) -> None:
        """One thing that users, nodes or fate do."""
        deeds: list[tuple[int, Callable[[], None]]] = [
            (8, self.claim),
            (5, self.pod),
            (4, self.delete_pod),
            (3, self.delete_claim),
            (2, self.scale),
            (5, self.fail_hook),
            (1, self.reboot),
            (1, self.lose_node),
            (2, self.kill),
        ]
        (deed,) = self.random.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])
        with contextlib.suppress(ApiFailure):
            deed()

    def claim(self) -> None:
        self.number += 1
        name = f"c{self.number}"
        count = self.random.choice((1, 1, 2))
        spec: Obj = {"replicas": self.random.choice((1, 1, 2, 3))}
        if spec["replicas"] > 1 and self.random.random() < 0.5:
            spec["gang"] = {}
        self.note(f"claim {name}: {count} x {spec}")
        self.site.ask(name, {"gpu": count, "nic": 1}, **spec)
        for index in range(self.random.choice((0, 1, spec["replicas"]))):
            self.site.create(pod(f"{name}-{index}", name))

    def pod(self) -> None:
        claim = self.some("DeviceClaim")
        if claim is not None:
            self.number += 1
            self.note(f"pod p{self.number} of {claim}")
            self.site.create(pod(f"p{self.number}", claim))

    def delete_pod(self) -> None:
        name = self.some("Pod")
        if name is not None:
            force = self.random.random() < 0.3
            self.note(f"delete pod {name}{' by force' if force else ''}")
            self.site.delete("Pod", name, **({"gracePeriodSeconds": 0} if force else {}))

    def delete_claim(self) -> None:
        name = self.some("DeviceClaim")
        if name is not None:
            self.note(f"delete claim {name}")
            self.site.delete("DeviceClaim", name)

    def scale(self) -> None:
        name = self.some("DeviceClaim")
        if name is not None and "gang" not in self.site.claim(name)["spec"]:
            count = self.random.randint(0, 3)
            self.note(f"scale {name} to {count}")
            self.site.patch("DeviceClaim", name, {"spec": {"replicas": count}})

    def fail_hook(self) -> None:
        """A hook's pod ends badly, as the kubelet would report it."""
        pods = self.site.plane.request("GET", HOOK_PODS)["items"]
        alive = [
            each
            for each in pods
            if each["status"].get("phase") in ("Pending", "Running") and each["spec"].get("nodeName")
        ]
        if alive:
            name = self.random.choice(alive)["metadata"]["name"]
            self.note(f"hook {name} fails")
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/status"
            self.site.plane.request(
                "PATCH", path, {"status": {"phase": "Failed"}}, content_type="application/merge-patch+json"
            )

    def reboot(self) -> None:
        name = self.random.choice(self.machines)
        self.note(f"node {name} is started anew")
        self.site.patch(
            "Node", name, {"status": {"nodeInfo": {"bootID": f"boot-{self.random.random()}"}}}, subresource="status"
        )

    def lose_node(self) -> None:
        """The Node object goes and comes back as another machine of that name."""
        name = self.random.choice(self.machines)
        node = self.site.get("Node", name)
        if node is not None:
            self.note(f"node {name} is lost and replaced")
            self.site.delete("Node", name)
            eventually(lambda: self.site.get("Node", name), lambda seen: seen is None, what="the node is gone")
            meta = {"name": name, "labels": node["metadata"]["labels"], "annotations": node["metadata"]["annotations"]}
            self.site.create({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}})

    def kill(self) -> None:
        """An operator dies while another is ready, as two replicas are for; a new one is started."""
        alive = [each for each in self.installation.operators if each.process.poll() is None]
        if len(alive) > 1 and all(each.get("/readyz")[0] == 200 for each in alive):
            victim = self.random.choice(alive)
            self.note(f"{victim.log.stem} is killed")
            victim.kill()
            self.killed.add(victim.log.stem)
            start(self.installation, self.proxy)


def start(installation: Installation, proxy: FaultProxy) -> None:
    """One more operator, which sees the API server through the proxy."""
    plane = installation.plane
    token = plane.token_for(NAMESPACE, ACCOUNT)
    number = len(installation.operators)
    path = plane.layout.kubeconfig(f"chaos-{number}")
    path.write_text(configs.for_token(proxy.url, plane.ca_data, USERNAME, token))
    installation.start_operator(f"--kubeconfig={path}", wait=False)


@pytest.fixture(scope="module")
def apart() -> Iterator[Installation]:
    """A cluster of its own: what fails here must fail nobody else."""
    with ControlPlane(Options(audit=True), name="chaos") as plane, installed(plane) as installation:
        yield installation


def test_no_device_in_two_hands_none_reused_unclean_nothing_leaked(apart: Installation) -> None:
    print(f"\nADJOIN_CHAOS_SEED={SEED} ADJOIN_CHAOS_SECONDS={SECONDS:.0f}")
    with FaultProxy(apart.plane, SEED) as proxy:
        start(apart, proxy)
        apart.operators[0].wait_ready()
        start(apart, proxy)
        site = Site.open(apart.plane, "chaos")
        machines = site.machines(hardware.two_roots, 4)
        hook = {"template": TEMPLATE, "timeout": "20s"}
        site.pool(
            lifecycle={
                "init": [{"name": "verify", "retries": 1, **hook}],
                "cleanup": [{"name": "scrub", "retries": 2, **hook}],
            }
        )
        chaos = Chaos(site, proxy, apart, machines, random.Random(SEED))
        with Watcher(apart.plane) as watcher:
            proxy.troubled = True
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                chaos.step()
                time.sleep(chaos.random.uniform(0.05, 0.6))
            proxy.troubled = False
            ended = {each.log.stem for each in apart.operators if each.process.poll() is not None}
            assert ended == chaos.killed, "an operator ended by itself"
            if not any(each.process.poll() is None for each in apart.operators):
                start(apart, proxy)
            for kind in ("Pod", "DeviceClaim"):
                for each in site.all(kind):
                    site.delete(kind, each["metadata"]["name"])
            eventually(
                lambda: [each["metadata"]["name"] for each in site.all("DeviceClaim")],
                lambda left: not left,
                what="every claim is gone",
                seconds=400,
            )
            eventually(lambda: site.all("ResourceClaim"), lambda left: not left, what="no ResourceClaim is left")
            eventually(lambda: _busy(site), lambda busy: not busy, what="no device is held", seconds=60)
            watcher.catch_up()
        told = "\n".join(chaos.log)
        assert sum(change.kind == "DeviceClaim" for change in watcher.changes) > SECONDS, "next to nothing happened"
        assert watcher.violations() == [], told
        assert unclean(watcher.changes) == [], told
        _at_rest(site)
        print(f"{len(watcher.changes)} changes, {dict(proxy.counts)}, {chaos.number} objects")
        print(told)
        site.close()


def _busy(site: Site) -> Obj:
    """Devices by state that are neither free nor in quarantine."""
    status = (site.get("DevicePool", site.namespace) or {}).get("status") or {}
    return {
        name: counts
        for name, counts in (status.get("devices") or {}).items()
        if any(counts.get(state) for state in ("allocated", "releasing", "reserved", "missing"))
    }


def _at_rest(site: Site) -> None:
    """Nothing is written any more but the Lease, once devices in quarantine have been recovered."""
    eventually(
        lambda: (site.get("DevicePool", site.namespace) or {}).get("status", {}).get("quarantined") or [],
        lambda left: not left,
        what="every device is recovered",
        seconds=400,
    )
    eventually(lambda: site.plane.request("GET", JOBS)["items"], lambda left: not left, what="no hook Job is left")
    time.sleep(5)
    began = datetime.now(UTC)
    time.sleep(QUIET_SECONDS)
    writes = [each for each in site.plane.writes(user=USERNAME, since=began) if each.resource != "leases"]
    assert writes == []
