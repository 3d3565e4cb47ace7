"""Decision after decision on cards that are shared in every way: claims come and go, shares are edited, cards fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support import make, modes_oracle
from tests.support.checks import assert_valid
from tests.support.mode_sites import SHARES, claims, named, sites
from tests.support.partition_checks import flaw, table_of
from tests.support.parts_checks import card_bytes

from adjoin_allocator import (
    Claim,
    Code,
    Device,
    DeviceID,
    Memo,
    Plan,
    ReplicaState,
    Share,
    ShareMode,
    Snapshot,
    Standing,
    plan,
)
from adjoin_allocator.acceptance import share_reports
from adjoin_allocator.model import PlacedDevice, PlacedShare
from adjoin_allocator.overdrawn import overdrawn

WAITING = 3
"""So many claims wait at most, so that the judge can try everything."""

LAYOUTS = ({"1g.10gb": 7}, {"3g.40gb": 2}, {"3g.40gb": 1, "1g.10gb": 3}, {"2g.20gb": 3}, {"7g.80gb": 1}, {"4g.40gb": 2})
PROFILES = (("1g.10gb",), ("3g.40gb", "1g.10gb"), ("7g.80gb", "2g.20gb"))


def named_share(name: str) -> Share:
    """The share of that name as it was at first: what lies where on a card does not change with it."""
    return next(each for each in SHARES if each.name == name)


def _smaller_or_larger(share: Share, number: int) -> Share:
    """The share after an edit."""
    match share.mode:
        case ShareMode.TIME_SLICED:
            return replace(share, slots=1 + number)
        case ShareMode.VIRTUAL_FUNCTIONS:
            return replace(share, functions=1 + number)
        case ShareMode.FRACTIONAL:
            return replace(share, min_reserve_bytes=number * (9 << 30))
        case ShareMode.MPS:
            return replace(share, max_clients=None if number > 4 else 1 + number, min_reserve_bytes=number << 30)
        case _:
            if share.layout:
                return replace(share, layout=LAYOUTS[number % len(LAYOUTS)])
            return replace(share, profiles=PROFILES[number % len(PROFILES)]) if share.name != "small" else share


class Sharing(RuleBasedStateMachine):
    """What the API server holds; every plan is carried out at once."""

    def __init__(self) -> None:
        super().__init__()
        self.memo = Memo()
        self.devices: list[Device] = []
        self.shares: dict[str, Share] = {}
        self.claims: list[Claim] = []
        self.came = 0
        self.given: dict[str, list[tuple[str, DeviceID, PlacedShare | None]]] = {}

    @property
    def snapshot(self) -> Snapshot:
        """What a decision is made of."""
        return make.snapshot(self.devices, self.claims, shares=self.shares.values())

    def placed(self) -> list[Claim]:
        """Claims that hold something and are not on their way."""
        return [claim for claim in self.claims if claim.placed and claim.placed[0].state is not ReplicaState.RELEASING]

    def releasing(self) -> list[Claim]:
        """Those that are."""
        return [claim for claim in self.claims if claim.placed and claim not in self.placed()]

    @initialize(data=st.data())
    def begins(self, data: st.DataObject) -> None:
        """Some cards and shares, and nobody who has anything."""
        site = data.draw(sites(cards=3))
        self.devices = [device for given in site.inventory.values() for device in given]
        self.shares = dict(site.shares)

    @rule(data=st.data())
    @precondition(lambda self: self.shares and len(self.claims) - len(self.placed()) < WAITING)
    def somebody_comes(self, data: st.DataObject) -> None:
        """A claim for whole devices or parts."""
        claim = named(data.draw(claims(self.snapshot)), self.came)
        self.came += 1
        self.claims.append(claim)
        self._decide()

    @rule(data=st.data(), deleting=st.booleans())
    @precondition(lambda self: self.placed())
    def somebody_leaves(self, data: st.DataObject, deleting: bool) -> None:
        """It holds its devices until they are clean."""
        claim = data.draw(st.sampled_from(self.placed()))
        self._edit(
            claim,
            lambda one: replace(
                one,
                deleting=deleting,
                placed=tuple(replace(each, state=ReplicaState.RELEASING) for each in one.placed),
            ),
        )
        self._decide()

    @rule(data=st.data())
    @precondition(lambda self: self.releasing())
    def somebody_has_gone(self, data: st.DataObject) -> None:
        """And what it had is clean."""
        self.claims.remove(data.draw(st.sampled_from(self.releasing())))
        self._decide()

    @rule(data=st.data())
    @precondition(lambda self: any(not claim.placed for claim in self.claims))
    def somebody_gives_up(self, data: st.DataObject) -> None:
        """A claim that waits is deleted."""
        self.claims.remove(data.draw(st.sampled_from([claim for claim in self.claims if not claim.placed])))
        self._decide()

    @rule()
    def the_process_is_new(self) -> None:
        """Nothing is remembered."""
        self.memo = Memo()

    @rule(data=st.data(), number=st.integers(0, 6), limit=st.sampled_from((None, None, 1, 2)))
    @precondition(lambda self: self.shares)
    def a_share_is_edited(self, data: st.DataObject, number: int, limit: int | None) -> None:
        """It gives more, or less, or something else."""
        name = data.draw(st.sampled_from(sorted(self.shares)))
        self.shares[name] = replace(_smaller_or_larger(self.shares[name], number), max_devices=limit)
        self._decide()

    @rule(data=st.data())
    @precondition(lambda self: len(self.shares) > 1)
    def a_share_is_deleted(self, data: st.DataObject) -> None:
        """Who has parts of it keeps them; who waits for one waits on."""
        del self.shares[data.draw(st.sampled_from(sorted(self.shares)))]
        self._decide()

    @rule(share=st.sampled_from(SHARES))
    def a_share_is_added(self, share: Share) -> None:
        """Another one of the same cards, or one that was there before."""
        self.shares.setdefault(share.name, share)
        self._decide()

    @rule(data=st.data(), standing=st.sampled_from((Standing.OFFERED, Standing.UNHEALTHY, Standing.MISSING)))
    def a_card_changes(self, data: st.DataObject, standing: Standing) -> None:
        """It is not well, or away, or well again; whoever has it keeps it."""
        at = data.draw(st.integers(0, len(self.devices) - 1))
        self.devices[at] = replace(self.devices[at], standing=standing)
        self._decide()

    def _edit(self, claim: Claim, change: Callable[[Claim], Claim]) -> None:
        self.claims = [change(one) if one is claim else one for one in self.claims]

    def _decide(self) -> None:
        """One decision: who waits and fits is served, and nobody else changes."""
        snapshot = self.snapshot
        decided = plan(snapshot, make.NOW, self.memo)
        cold = plan(snapshot, make.NOW)
        assert (decided.claims, decided.pools) == (cold.claims, cold.pools)
        assert_valid(snapshot, decided)
        assert not any(answer.conflicts for answer in decided.claims.values())
        self._served(snapshot, decided)
        self._told(snapshot, decided)
        for claim in list(self.claims):
            answer = decided.claims.get(claim.uid)
            if answer is not None and answer.placements:
                new = answer.placements
                self._edit(claim, lambda one, new=new: make.after(one, new))  # type: ignore[misc]

    def _served(self, snapshot: Snapshot, decided: Plan) -> None:
        waiting = [claim for claim in self.claims if not claim.placed and not claim.deleting]
        got = [claim.name for claim in waiting if decided.claims[claim.uid].placements]
        assert got == list(modes_oracle.served(snapshot, waiting))
        if got:
            return
        back = {claim.uid for claim in self.releasing()}
        later = replace(snapshot, claims=tuple(claim for claim in snapshot.claims if claim.uid not in back))
        for claim in waiting:
            codes = [reason.code for reason in decided.claims[claim.uid].reasons]
            if len(claim.requests) == 1 and not claim.affinity:
                passes = modes_oracle.first_way(later, claim) is not None
                assert (Code.DEVICE_RELEASING in codes) == passes, (claim, decided.claims[claim.uid])

    def _told(self, snapshot: Snapshot, decided: Plan) -> None:
        """What is said of shares is so, and all of it is said."""
        given = {uid: answer.placements for uid, answer in decided.claims.items()}
        after = replace(
            snapshot, claims=tuple(make.after(claim, given.get(claim.uid, ())) for claim in snapshot.claims)
        )
        assert set(overdrawn(snapshot, decided)) == modes_oracle.overdrawn(after)
        reports = share_reports(snapshot, decided)
        assert {name for name, report in reports.items() if report.in_use} == modes_oracle.stuck(after)
        for name, report in reports.items():
            assert (not report.refusal) == modes_oracle.accepted(after, snapshot.shares[name]), report
            for device, slots in report.placements:
                table = table_of(snapshot.shares[name], device)
                assert table is not None
                assert not flaw(table, [(slot.profile, slot.start) for slot in slots])
                parts = modes_oracle.held(after).get(device.id) or ()
                mine = {(part.profile, part.start) for part in parts if part.name == name}
                assert mine <= {(slot.profile, slot.start) for slot in slots}

    @invariant()
    def nothing_is_given_twice(self) -> None:
        """Whatever was edited: no slice and no function has two holders, no byte and no thousandth of a card either,
        and nobody shares a whole device.
        """
        known = {device.id: device for device in self.devices}
        parts: dict[DeviceID, list[PlacedDevice]] = {}
        for claim in self.claims:
            for replica in claim.placed:
                for device in replica.devices:
                    parts.setdefault(device.id, []).append(device)
        for device, holders in parts.items():
            shares = [each.share for each in holders]
            assert None not in shares or len(shares) == 1, f"{device} is held whole and by others"
            assert len({share.name for share in shares if share}) <= 1
            functions = [share.vf for share in shares if share and share.vf is not None]
            assert len(set(functions)) == len(functions)
            memory = sum(share.memory_bytes or 0 for share in shares if share)
            assert memory <= card_bytes(known[device]), f"{memory} bytes of {device} are held"
            assert sum(share.compute_milli or 0 for share in shares if share) <= 1000
            partitions = [share for share in shares if share and share.profile]
            table = table_of(named_share(partitions[0].name), known[device]) if partitions else None
            if table is not None:
                slices = [(each.profile or "", -1 if each.start is None else each.start) for each in partitions]
                assert not flaw(table, slices), f"{device}: {flaw(table, slices)}"

    @invariant()
    def every_part_says_what_its_mode_gives(self) -> None:
        """A part keeps what it was given, whatever becomes of its share meanwhile."""
        for claim in self.claims:
            given = [(one.request, one.id, one.share) for replica in claim.placed for one in replica.devices]
            before = self.given.get(claim.name)
            assert before is None or given == before, f"{claim.name} holds {given}, it was given {before}"
            if given:
                self.given[claim.name] = given

    def teardown(self) -> None:
        """When all have gone, the answer is that of a cluster that nobody used."""
        if not self.devices:
            return
        self.claims = []
        last = make.claim("last", make.request("gpu"))
        snapshot = replace(self.snapshot, claims=(last,))
        assert plan(snapshot, make.NOW, self.memo).claims == plan(snapshot, make.NOW).claims


TestSharing = Sharing.TestCase
TestSharing.settings = settings(
    max_examples=40,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
)
