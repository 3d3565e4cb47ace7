"""Who may plan and write: one replica at a time, by a Lease.

In comes a client; out goes `deadline`, the moment (monotonic clock) until which this process may send writes. It is
counted from before the request that renewed the Lease, so it ends earlier than any other replica can believe the Lease
expired, whatever the wall clocks say. Every change of the Lease is a PUT with its resourceVersion, so of several racers
one wins.

`run` returns only by raising `LeadershipLost`: the process then ends and starts anew as a follower. The elector writes
the Lease itself; it is the one object that does not pass through the writer, because the writer obeys it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import structlog

from adjoin.facts import Raw
from adjoin.intents import Kind
from adjoin.kube import AlreadyExists, Conflict, Kube, KubeError, NotFound, OutcomeUnknown

LEASE_SECONDS = 12.0
"""A Lease that nobody renewed for so long before a follower's eyes may be taken. With the time that a follower needs to
see the last renewal (up to 2.2 s) a takeover is over within 15 s of it."""
DEADLINE_SECONDS = 9.0
"""A leader that could not renew for so long stops: 3 s before anybody else may begin."""
RETRY_SECONDS = 2.0
"""Between two renewals, and between two looks of a follower."""
SOON_SECONDS = 0.5
"""Before another try of a leader that could not renew: its time is running out."""

_log = structlog.get_logger(__name__)


class LeadershipLost(Exception):
    """This process led and may not do so any longer."""


def micro_time(moment: datetime) -> str:
    """A Kubernetes MicroTime: UTC with exactly six digits, which its parsers insist on."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Elector:
    """Competes for one Lease under one identity, which must be unique among all processes that ever compete for it."""

    def __init__(
        self,
        kube: Kube,
        *,
        namespace: str,
        name: str,
        identity: str,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._on_change = on_change
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._lease: Raw | None = None
        self._seen: tuple[Any, ...] = ()
        self._seen_at = 0.0
        self.deadline = float("-inf")

    @property
    def leading(self) -> bool:
        """Whether a write may be sent now."""
        return self._clock() < self.deadline

    @property
    def holder(self) -> str:
        """Identity of the holder as last seen, or ""."""
        return str(((self._lease or {}).get("spec") or {}).get("holderIdentity") or "")

    async def run(self) -> None:
        """Waits for the Lease, keeps it, and raises `LeadershipLost` when it can no longer be kept."""
        while not await self._attempt():
            await self._pause(until=self._expiry())
        _log.info("leading", lease=self._name, identity=self.identity)
        self._on_change()
        renewed = True
        while True:
            # Never past the deadline: noticing late is as bad as not noticing.
            await self._pause(RETRY_SECONDS if renewed else SOON_SECONDS, until=self.deadline)
            renewed = await self._renew()
            if renewed:
                continue
            if self.holder != self.identity or not self.leading:
                self.deadline = float("-inf")
                self._on_change()
                if self.holder == self.identity:
                    raise LeadershipLost(f"lease {self._name} was not renewed for {DEADLINE_SECONDS:.0f} s")
                raise LeadershipLost(f"lease {self._name} is held by {self.holder or 'nobody'}")

    async def release(self) -> None:
        """Gives the Lease up, so that another replica need not wait for it to expire. Failing to do so is no harm."""
        if not self.leading or self._lease is None:
            return
        self.deadline = float("-inf")
        try:
            try:
                await self._give_up(self._lease)
            except Conflict:
                # A renewal that was under way when we stopped came first.
                await self._look()
                if self._lease is None or self.holder != self.identity:
                    return
                await self._give_up(self._lease)
            _log.info("lease released", lease=self._name)
        except KubeError as error:
            _log.warning("the lease was not released and will expire", lease=self._name, error=str(error))

    async def _give_up(self, lease: Raw) -> None:
        body = self._body(lease, holder="", seconds=1)
        await self._kube.replace(Kind.LEASE, self._namespace, self._name, body, seconds=RETRY_SECONDS)

    async def _renew(self) -> bool:
        """An attempt that ends with the leadership itself: at its deadline there is nothing left to wait for."""
        try:
            async with asyncio.timeout(max(self.deadline - self._clock(), 0.0)):
                return await self._attempt()
        except TimeoutError:
            return False

    async def _attempt(self) -> bool:
        """One try to take or renew the Lease. Whether it succeeded; never raises an API error."""
        started = self._clock()
        try:
            # A leader renews the version it wrote itself; only when that fails it looks what has become of it.
            if self.holder != self.identity:
                await self._look()
            if self._lease is None:
                body = self._body(None, holder=self.identity)
                lease = await self._kube.create(Kind.LEASE, self._namespace, body, seconds=RETRY_SECONDS * 2)
            elif self._free():
                body = self._body(self._lease, holder=self.identity)
                lease = await self._kube.replace(
                    Kind.LEASE, self._namespace, self._name, body, seconds=RETRY_SECONDS * 2
                )
            else:
                return False
        except (Conflict, AlreadyExists, NotFound, OutcomeUnknown) as error:
            _log.info("the lease was not renewed" if self.leading else "the lease was not taken", error=str(error))
            await self._look_again()
            return False
        except KubeError as error:
            _log.info("the lease cannot be reached", error=str(error))
            return False
        self._note(lease)
        self.deadline = started + DEADLINE_SECONDS
        return True

    async def _look(self) -> None:
        try:
            lease = await self._kube.get(Kind.LEASE, self._namespace, self._name, seconds=RETRY_SECONDS * 2)
        except NotFound:
            self._lease = None
            return
        self._note(lease)

    async def _look_again(self) -> None:
        """After a failure: who holds it now? A write of ours that got through after all is found and used this way."""
        try:
            await self._look()
        except KubeError as error:
            _log.info("the lease cannot be read", error=str(error))

    def _note(self, lease: Raw) -> None:
        spec = lease.get("spec") or {}
        seen = (
            spec.get("holderIdentity"),
            spec.get("renewTime"),
            spec.get("acquireTime"),
            spec.get("leaseTransitions"),
        )
        if seen != self._seen:
            # Another's clock is never compared with ours: what counts is how long its record did not change.
            self._seen, self._seen_at = seen, self._clock()
        self._lease = lease

    def _free(self) -> bool:
        return self.holder in ("", self.identity) or self._clock() >= self._seen_at + self._duration()

    def _duration(self) -> float:
        spec = (self._lease or {}).get("spec") or {}
        return max(float(spec.get("leaseDurationSeconds") or 0), 1.0)

    def _expiry(self) -> float:
        """When another's Lease runs out, if that is to come."""
        expiry = self._seen_at + self._duration()
        return expiry if self._lease is not None and expiry > self._clock() else float("inf")

    def _body(self, lease: Raw | None, *, holder: str, seconds: int = int(LEASE_SECONDS)) -> Raw:
        now = micro_time(self._wall())
        old = (lease or {}).get("spec") or {}
        kept = bool(holder) and old.get("holderIdentity") == holder
        return {
            "apiVersion": Kind.LEASE.value.api_version,
            "kind": Kind.LEASE.value.kind,
            "metadata": (lease or {}).get("metadata") or {"namespace": self._namespace, "name": self._name},
            "spec": {
                **old,
                "holderIdentity": holder,
                "leaseDurationSeconds": seconds,
                "acquireTime": (old.get("acquireTime") if kept else None) or now,
                "renewTime": now,
                "leaseTransitions": int(old.get("leaseTransitions") or 0)
                + (0 if kept or lease is None or not holder else 1),
            },
        }

    async def _pause(self, seconds: float = RETRY_SECONDS, *, until: float = float("inf")) -> None:
        wanted = seconds * self._rng.uniform(0.9, 1.1)
        await self._sleep(max(min(wanted, until - self._clock()), 0.0))
