"""Random small sites with shares of every mode on the same cards, and claims for them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from tests.support import make

from adjoin_allocator import Claim, Device, Isolation, Profile, Request, Share, ShareAsk, ShareMode, Snapshot
from adjoin_allocator.cel import compile_selector
from adjoin_allocator.model import Alternative, Lent

GIB = 1 << 30
PRODUCT = "gpu.nvidia.com/productName"
H100, A30 = "NVIDIA H100 80GB HBM3", "NVIDIA A30"
MEMORY = {H100: "80Gi", A30: "24Gi"}


def gpu(name: str, product: str = H100, node: str = make.NODE, **more: object) -> Device:
    """A card that says what it is."""
    return make.card(name, node, MEMORY[product], attributes={PRODUCT: product}, **more)


def of_product(product: str) -> tuple[object, ...]:
    """The selectors of a share of such cards."""
    return (compile_selector(f"device.attributes['gpu.nvidia.com'].productName == '{product}'"),)


def share(mode: ShareMode, name: str = "", **more: object) -> Share:
    """A share of GPUs, or of NICs, with sound figures; its name is its mode's, in small letters."""
    figures: dict[ShareMode, dict[str, object]] = {
        ShareMode.TIME_SLICED: {"slots": 4},
        ShareMode.FRACTIONAL: {},
        ShareMode.MPS: {"max_clients": 3},
        ShareMode.PARTITIONED: {"profiles": ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb")},
        ShareMode.VIRTUAL_FUNCTIONS: {"kind": "nic", "functions": 3},
    }
    return make.share(name or mode.lower(), mode=mode, **{**figures[mode], **more})


SHARES: tuple[Share, ...] = (
    share(ShareMode.TIME_SLICED),
    share(ShareMode.FRACTIONAL),
    share(ShareMode.MPS),
    share(ShareMode.PARTITIONED, selectors=of_product(H100)),
    share(ShareMode.PARTITIONED, "small", selectors=of_product(A30), profiles=("1g.6gb", "2g.12gb", "4g.24gb")),
    share(
        ShareMode.PARTITIONED, "layout", selectors=of_product(H100), profiles=(), layout={"3g.40gb": 1, "1g.10gb": 4}
    ),
    share(ShareMode.PARTITIONED, "mixed", profiles=("1g.10gb", "1g.6gb", "4g.24gb", "3g.40gb")),
    share(ShareMode.VIRTUAL_FUNCTIONS),
)


@st.composite
def sites(draw: st.DrawFn, *, cards: int = 4, nics: bool = True) -> Snapshot:
    """One or two nodes with a few cards of one or two products, NICs beside them, and some of the shares."""
    devices: list[Device] = []
    left = draw(st.integers(1, cards))
    for number in range(draw(st.integers(1, 2))):
        mine = left if number else draw(st.integers(1, left))
        left -= mine
        node = f"node-{number}"
        for at in range(mine):
            product = draw(st.sampled_from((H100, H100, A30)))
            devices.append(gpu(f"gpu-{at}", product, node, numa=at % 2))
        if nics and mine:
            devices += [make.device(f"nic-{at}", node, numa=at) for at in range(draw(st.integers(0, 2)))]
    shares = [
        replace(each, max_devices=draw(st.sampled_from((None, None, None, 1, 2))))
        for each in draw(st.lists(st.sampled_from(SHARES), min_size=1, max_size=4, unique=True))
    ]
    return make.snapshot(devices, shares=shares)


@st.composite
def hosted(draw: st.DrawFn, inner: st.SearchStrategy[Snapshot]) -> Snapshot:
    """Such sites whose nodes have little for pods beside devices, some of it in use."""
    site = draw(inner)
    rooms = st.sampled_from((None, 2000, 4000, 5000)), st.sampled_from((None, 2 * GIB, 4 * GIB)), st.integers(0, 1500)
    return replace(
        site,
        nodes={
            name: replace(node, cpu_milli=draw(rooms[0]), memory_bytes=draw(rooms[1]), cpu_used_milli=draw(rooms[2]))
            for name, node in site.nodes.items()
        },
    )


@st.composite
def lent_sites(draw: st.DrawFn, *, cards: int = 3) -> Snapshot:
    """Such sites in which others than claims consume parts of some cards."""
    site = draw(sites(cards=cards))
    others = {
        device.id: Lent(draw(st.integers(0, 90)) * GIB, draw(st.sampled_from((None, None, 0, 1, 2))))
        for devices in site.inventory.values()
        for device in devices
        if device.kind == "gpu" and draw(st.sampled_from((True, True, False)))
    }
    return replace(
        site,
        inventory={
            node: tuple(replace(one, lent=others[one.id]) if one.id in others else one for one in devices)
            for node, devices in site.inventory.items()
        },
        holds={device: replace(make.hold(), shared=True, lent=each) for device, each in others.items()},
    )


@st.composite
def asks(draw: st.DrawFn, snapshot: Snapshot) -> tuple[str, ShareAsk | None]:
    """A kind of device and what is asked of it: a part of one of the shares, or the whole."""
    chosen = draw(st.sampled_from((None, *sorted(snapshot.shares) * 2)))
    if chosen is None:
        return "gpu", None
    one = snapshot.shares[chosen]
    match one.mode:
        case ShareMode.TIME_SLICED:
            return one.kind, ShareAsk(chosen, slots=draw(st.none() | st.integers(1, one.slots)))
        case ShareMode.VIRTUAL_FUNCTIONS:
            return one.kind, ShareAsk(chosen)
        case ShareMode.PARTITIONED:
            return one.kind, ShareAsk(chosen, profile=draw(st.sampled_from((*one.layout, *one.profiles))))
        case _:
            memory = draw(st.none() | st.sampled_from((GIB, 8 * GIB, 12 * GIB, 30 * GIB, 80 * GIB)))
            least = st.sampled_from((100, 250, 334, 500, 1000))
            return one.kind, ShareAsk(
                chosen, memory_bytes=memory, compute_milli=draw(least | st.none() if memory else least)
            )


@st.composite
def requests(draw: st.DrawFn, snapshot: Snapshot, name: str, *, several: bool = True) -> Request:
    """A request for whole devices or parts; with `several` now and then for several, apart or of one device."""
    kind, ask = draw(asks(snapshot))
    count = draw(st.sampled_from((1, 1, 1, 2, 3))) if several else 1
    same = ask is not None and count > 1 and draw(st.booleans())
    isolation = draw(st.sampled_from((Isolation.NONE, Isolation.NONE, Isolation.COOPERATIVE, Isolation.HARD)))
    return make.request(
        name, count, kind=kind, share=ask, same_device=same, isolation=isolation if ask else Isolation.NONE
    )


@st.composite
def claims(draw: st.DrawFn, snapshot: Snapshot, *, alternatives: bool = False, lines: bool = True) -> Claim:
    """A claim with one request or two; with `alternatives` each in one of several ways."""
    asked: list[Request] = []
    for at in range(draw(st.sampled_from((1, 1, 2)))):
        one = draw(requests(snapshot, f"r{at}"))
        if alternatives and draw(st.booleans()):
            others = [one, *(draw(requests(snapshot, one.name)) for _ in range(draw(st.integers(1, 2))))]
            of_kind = [each for each in others if each.kind == one.kind]
            named = tuple(
                Alternative(f"w{number}", each.count, False, (), each.share, each.same_device, each.isolation)
                for number, each in enumerate(of_kind)
            )
            one = replace(one, count=1, share=None, same_device=False, isolation=Isolation.NONE, first_of=named)
        asked.append(one)
    near = []
    if lines and len(asked) == 2 and asked[0].kind != asked[1].kind and draw(st.booleans()):
        line = draw(st.sampled_from((make.required, make.preferred)))
        near.append(line("NUMANode", "r0", "r1"))
    profile = draw(st.sampled_from((Profile.BALANCED, Profile.BALANCED, Profile.LATENCY, Profile.COMPUTE)))
    return make.claim("c", *asked, *near, profile=profile)


def named(claim: Claim, number: int) -> Claim:
    """The claim as the one that comes at this turn."""
    name = f"c{number:02}"
    return replace(claim, uid=make.claim(name).uid, name=name, created=float(number))
