"""Random machines and claims for property tests: small enough for the oracle, odd enough to meet every rule.

Half of the machines are trees as real ones are, with facts missing here and there; the other half have arbitrary
matrices, in which nothing is a tree. `machines` and `claims` are hypothesis strategies; what they reach is itself
tested.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from tests.support import make

from adjoin_allocator import (
    Affinity,
    Alternative,
    Claim,
    Device,
    HoldKind,
    HostAsk,
    MatrixText,
    Policy,
    Pool,
    Profile,
    ReplicaState,
    Request,
    Scope,
    Snapshot,
    Standing,
    Strategy,
)
from adjoin_allocator.cel import compile_selector

RAIL = "dra.net/rail"
WORDS = ("NV1", "NV4", "PIX", "PXB", "PHB", "NODE", "SYS")

_maybe_numa = st.sampled_from((0, 0, 1, 1, None, -1, (0, 1)))
_standing = st.sampled_from((Standing.OFFERED,) * 9 + (Standing.UNHEALTHY, Standing.WITHHELD, Standing.MISSING))


_profile = st.sampled_from((Profile.BALANCED, Profile.BALANCED, *Profile))
_host = st.sampled_from((*[HostAsk()] * 5, HostAsk(cpu_milli=1000), HostAsk(500, 1 << 30)))
_strategy = st.sampled_from((Strategy.LEAST_FRAGMENTATION, Strategy.LEAST_FRAGMENTATION, *Strategy))


@st.composite
def machines(draw: st.DrawFn, node: str, most: int, matrix: bool) -> list[Device]:
    """The devices of one node."""
    gpus = draw(st.sampled_from(range(most // 2, most)))
    nics = draw(st.sampled_from((most - gpus, most - gpus, (most - gpus) // 2)))
    facts = draw(st.sampled_from(("none", "roots", "switches", "numa", "all", "odd", "odd")))
    devices = []
    for kind, count in (("gpu", gpus), ("nic", nics)):
        for index in range(count):
            branch = draw(st.integers(0, 3))
            root: Any = f"r{branch // 2}" if facts in ("roots", "switches", "all") else None
            switch: Any = f"s{branch}" if facts in ("switches", "all") else None
            numa: Any = branch // 2 if facts in ("numa", "all") else None
            if facts == "odd":
                root = draw(st.sampled_from(("r0", "r1", "", None)))
                switch = draw(st.sampled_from(("s0", "s1", None)))
                numa = draw(_maybe_numa)
            rail = draw(st.sampled_from((0, 1, 2, None, (0, 1), (1, 2)))) if draw(st.booleans()) else index
            devices.append(
                make.device(
                    f"{kind}-{index}",
                    node,
                    root=root,
                    switch=switch,
                    numa=numa,
                    attributes={} if rail is None else {RAIL: rail},
                    performance=draw(st.sampled_from((0, 0, 10, 20))),
                    priority=draw(st.sampled_from((0, 0, 1))),
                    standing=Standing.OFFERED if matrix else draw(_standing),
                )
            )
    return devices


@st.composite
def matrices(draw: st.DrawFn, devices: list[Device]) -> str:
    """Text of `nvidia-smi topo -m` with arbitrary words."""
    counts = {"GPU": sum(one.kind == "gpu" for one in devices), "NIC": sum(one.kind == "nic" for one in devices)}
    names = [f"{kind}{index}" for kind, count in counts.items() for index in range(count)]
    cells: dict[tuple[int, int], str] = {}
    for one in range(len(names)):
        for other in range(one + 1, len(names)):
            near = names[one].startswith("GPU") and names[other].startswith("GPU")
            cells[one, other] = cells[other, one] = draw(st.sampled_from(WORDS if near else WORDS[2:]))
    rows = ["\t".join(["", *names])]
    for one, name in enumerate(names):
        rows.append("\t".join([name, *("X" if other == one else cells[one, other] for other in range(len(names)))]))
    return "\n".join(rows) + "\n"


@st.composite
def claims(draw: st.DrawFn, name: str, number: int = 0) -> Claim:
    """A claim for GPUs, NICs, both, or twice the same kind, with up to three lines."""
    shapes = (
        ("gpu",),
        ("nic",),
        ("gpu", "nic"),
        ("gpu", "nic"),
        ("nic", "gpu"),
        ("gpu", "more"),
        ("gpu", "nic", "more"),
    )
    requests = []
    for asked in draw(st.sampled_from(shapes)):
        kind = draw(st.sampled_from(("gpu", "nic"))) if asked == "more" else asked
        if draw(st.integers(0, 11)) == 0:
            requests.append(make.everything(asked, kind=kind))
        else:
            count = draw(st.sampled_from((1, 1, 1, 1, 2, 2, 3)))
            chosen = draw(st.sampled_from(((), (), (), (), ("device.attributes['dra.net'].?rail != optional.of(0)",))))
            requests.append(make.selecting(asked, *chosen, count=count, kind=kind))
        if draw(st.integers(0, 7)) == 0:
            requests[-1] = replace(requests[-1], first_of=draw(_alternatives()))
    lines = [draw(_lines(requests)) for _ in range(draw(st.sampled_from((0, 0, 0, 1, 1, 2, 3))))]
    return make.claim(
        name,
        *requests,
        *lines,
        replicas=draw(st.sampled_from((1, 1, 1, 2))),
        priority=draw(st.sampled_from((0, 0, 5))),
        created=make.NOW + draw(st.integers(0, 2)) + number / 100,
        profile=draw(_profile),
        host=draw(_host),
    )


@st.composite
def _alternatives(draw: st.DrawFn) -> tuple[Alternative, ...]:
    """One to three ways of serving a request; more devices are wanted more, as a rule."""
    found = []
    for name, most in zip(("whole", "half", "least")[: draw(st.integers(1, 3))], (5, 3, 2), strict=False):
        if draw(st.integers(0, 9)) == 0:
            found.append(Alternative(name, all_devices=True))
        else:
            chosen = draw(st.sampled_from(((), (), ("device.attributes['dra.net'].?rail != optional.of(0)",))))
            selectors = tuple(map(compile_selector, chosen))
            found.append(Alternative(name, count=draw(st.integers(1, most)), selectors=selectors))
    return tuple(found)


@st.composite
def _lines(draw: st.DrawFn, requests: list[Request]) -> Affinity:
    names = [request.name for request in requests]
    members = tuple(draw(st.permutations(names))[: draw(st.integers(1, len(names)))])
    if draw(st.integers(0, 4)) == 0:
        attribute = draw(st.sampled_from((RAIL, "numaNode")))
        return Affinity(members, draw(st.sampled_from((Policy.MATCH, Policy.DISTINCT))), attribute=attribute)
    scope = draw(st.sampled_from(tuple(Scope)))
    return Affinity(members, draw(st.sampled_from((Policy.REQUIRED, Policy.PREFERRED))), scope=scope)


@st.composite
def snapshots(draw: st.DrawFn, nodes: int = 3, most: int = 9, waiting: int = 3) -> Snapshot:
    """Up to `most` devices on up to `nodes` nodes, and up to `waiting` claims; some devices are already taken."""
    devices: list[Device] = []
    texts = {}
    count = min(nodes, draw(st.sampled_from((1, 1, 2, 2, 3))))
    for number in range(count):
        name = f"node-{number + 9}"
        with_matrix = draw(st.booleans())
        given = draw(machines(name, max(2, most // count), with_matrix))
        devices += given
        if with_matrix:
            texts[name] = MatrixText("topo/matrix", draw(matrices(given)))
    held = [one for one in devices if draw(st.integers(0, 7)) == 0]
    asked = [draw(claims(f"claim-{number}", number)) for number in range(draw(st.sampled_from((1, 1, waiting))))]
    holds = {}
    for number, one in enumerate(held):
        way = draw(st.sampled_from(("claim", "claim", "releasing", "deleting", "foreign", "returning")))
        if way in ("foreign", "returning"):
            kind = HoldKind.FOREIGN if way == "foreign" else HoldKind.RELEASING
            holds[one.id] = make.hold(kind, f"ResourceClaim other/{way}-{number // 2}")
        else:
            state = ReplicaState.RELEASING if way == "releasing" else ReplicaState.READY
            more = {"created": make.NOW - 100, "state": state, "deleting": way == "deleting"}
            asked.insert(0, make.holding(f"holder-{number}", [one], **more))
    # The oracle serves one claim after the other, as the walk does alone.
    pool: Pool = make.pool(matrices=texts, strategy=draw(_strategy), optimise_milliseconds=0)
    limits = st.sampled_from(((None, None), (None, None), (1000, None), (2500, 1 << 30)))
    objects = []
    for name in dict.fromkeys(one.node for one in devices):
        cpu, memory = draw(limits)
        objects.append(make.node(name, cpu_milli=cpu, memory_bytes=memory))
    return make.snapshot(devices, asked, pools=[pool], holds=holds, nodes=objects)


@st.composite
def uneven(draw: st.DrawFn) -> Snapshot:
    """One node and one claim for different numbers of GPUs and NICs, in any order of requests, lines between them."""
    gpus, nics = draw(st.sampled_from(((1, 3), (2, 3), (3, 2), (2, 5), (4, 3), (3, 1), (3, 4))))
    devices = []
    odd = draw(st.booleans())
    for kind, count in (("gpu", gpus + draw(st.integers(0, 1))), ("nic", nics + draw(st.integers(0, 2)))):
        for index in range(count):
            branch = draw(st.integers(0, 3))
            switch = draw(st.sampled_from((f"s{branch}", None))) if odd else f"s{branch}"
            devices.append(make.device(f"{kind}-{index}", switch=switch, root=f"r{branch // 2}", numa=branch // 3))
    requests = draw(st.permutations([make.request("gpu", gpus), make.request("nic", nics)]))
    lines = draw(st.lists(_lines(list(requests)), max_size=2))
    claim = make.claim("claim", *requests, *lines, profile=draw(_profile))
    return make.snapshot(devices, [claim], pools=[make.pool(strategy=draw(_strategy))])


@st.composite
def listed(draw: st.DrawFn) -> Snapshot:
    """One node of devices on several NUMA nodes each, and a claim for a set of them that must share one."""
    numa = st.sampled_from(((0, 1), (1, 2), (0, 2), (0, 1, 2), 0, 1, 2, None))
    devices = [
        make.device(f"gpu-{index}", numa=draw(numa), root=draw(st.sampled_from(("r0", "r1", ("r0", "r1"), None))))
        for index in range(draw(st.integers(3, 7)))
    ]
    scope = draw(st.sampled_from((Scope.NUMA_NODE, Scope.NUMA_NODE, Scope.PCIE_ROOT)))
    line = draw(st.sampled_from((make.required(scope, "gpu"), make.match("numaNode", "gpu"))))
    more = draw(st.sampled_from(((), (make.distinct("pcieRoot", "gpu"),))))
    asked = make.request("gpu", draw(st.integers(2, 4)))
    held = {devices[0].id: make.hold()} if draw(st.booleans()) else {}
    claim = make.claim("claim", asked, line, *more, profile=draw(_profile))
    return make.snapshot(devices, [claim], holds=held)
