"""What a container is told of the limits of its parts of cards, as environment.

In come the cards of one container with the part that it has of each; out go variables. They bind who keeps to them,
each process by itself: Adjoin accounts for parts, and only partitions and functions are kept apart by hardware. Where
several cards have different limits and a variable knows only one, the least stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from adjoin.api.names import MEMORY_LIMIT
from adjoin_allocator.model import Device, PlacedShare
from adjoin_allocator.sharing import MILLI, memory_bytes
from adjoin_allocator.terms import ShareMode

MEBIBYTE: Final = 1 << 20

MPS_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
MPS_PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
COMPUTE: Final = "ADJOIN_COMPUTE_LIMIT_MILLI"
FRACTION: Final = "ADJOIN_MEMORY_FRACTION"
XLA_FRACTION: Final = "XLA_PYTHON_CLIENT_MEM_FRACTION"
HAMI_MEMORY: Final = "CUDA_DEVICE_MEMORY_LIMIT"
HAMI_COMPUTE: Final = "CUDA_DEVICE_SM_LIMIT"
LIMITS: Final = (
    MPS_THREADS,
    MPS_MEMORY,
    MPS_PIPE,
    MEMORY_LIMIT,
    COMPUTE,
    FRACTION,
    XLA_FRACTION,
    HAMI_MEMORY,
    HAMI_COMPUTE,
)
"""Variables that the ConfigMap has where parts have limits; what a container sets itself is replaced."""
SWITCHES: Final = (
    "CUDA_DISABLE_CONTROL",
    "GPU_CORE_UTILIZATION_POLICY",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
)
"""Variables by which a container would take limits off, or reach a card beyond its part."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The part that a replica has of one device.

    Attributes:
        share: How much of it.
        mode: How the device is divided, None where the DeviceShare is not there any more.
        id: Identity of the part, as a hook reported it, or "".
        interval: How long a turn of it is (TimeSliced), or "".
        pipe: Where its MPS daemon is reached, as a hook reported it, or "".
    """

    share: PlacedShare
    mode: ShareMode | None = None
    id: str = ""
    pipe: str = ""
    interval: str = ""

    @property
    def by_hardware(self) -> bool:
        """It is a device of its own, known by its id."""
        return self.share.profile is not None or self.share.vf is not None


@dataclass(frozen=True, slots=True)
class Card:
    """A card as a container sees it: all parts that it has of it together; None is not limited."""

    device: Device
    memory: int | None
    compute: int | None
    mps: bool
    pipes: frozenset[str] = frozenset()


def together(device: Device, holdings: Sequence[Holding | None]) -> Card:
    """What a container may use of a card of which it has these parts; None is the whole."""
    parts = [each for each in holdings if each is not None]
    if len(parts) < len(holdings):
        return Card(device, None, None, mps=False)
    memory = [each.share.memory_bytes for each in parts]
    compute = [each.share.compute_milli for each in parts]
    return Card(
        device,
        None if None in memory else sum(each or 0 for each in memory),
        None if None in compute else min(MILLI, sum(each or 0 for each in compute)),
        mps=any(each.mode is ShareMode.MPS for each in parts),
        pipes=frozenset(each.pipe for each in parts if each.pipe),
    )


def limits(cards: Sequence[Card]) -> Iterator[tuple[str, str]]:
    """The variables, for cards in the order in which CUDA numbers them."""
    memory = [card.memory for card in cards if card.memory is not None]
    compute = [card.compute for card in cards if card.compute is not None]
    if memory:
        yield MEMORY_LIMIT, ",".join(str(card.memory or 0) for card in cards)
        yield HAMI_MEMORY, f"{min(memory) // MEBIBYTE}m"
        fractions = [fraction for card in cards if (fraction := _fraction(card)) is not None]
        if len(fractions) == len(memory):
            least = f"{min(fractions) / 10_000:.4f}"
            yield FRACTION, least
            yield XLA_FRACTION, least
    if compute:
        yield COMPUTE, ",".join(str(card.compute or 0) for card in cards)
        yield HAMI_COMPUTE, str(percent(min(compute)))
    threads = [card.compute for card in cards if card.mps and card.compute is not None]
    if threads:
        yield MPS_THREADS, str(percent(min(threads)))
    pinned = [(place, card.memory) for place, card in enumerate(cards) if card.mps and card.memory is not None]
    if pinned:
        yield MPS_MEMORY, ",".join(f"{place}={amount // MEBIBYTE}M" for place, amount in pinned)
    pipes = frozenset[str]().union(*(card.pipes for card in cards))
    if len(pipes) == 1:
        yield MPS_PIPE, next(iter(pipes))


def percent(milli: int) -> int:
    """Thousandths as whole percent, rounded down, but never to nothing."""
    return max(1, milli // 10)


def _fraction(card: Card) -> int | None:
    """Ten-thousandths of the card's memory, rounded down; None without limit, or where its memory is not known."""
    total = memory_bytes(card.device)
    return None if card.memory is None or not total else card.memory * 10_000 // total
