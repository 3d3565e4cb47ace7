"""Field reports about time slices, MPS, partitions and virtual functions, from objects to what `plan` prints: each test
is named by the id of its report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml
from tests.support.objects import devicepool
from tests.support.planning import Ran, plan_objects, run_plan, with_status

Obj = dict[str, Any]
H100 = "NVIDIA H100 80GB HBM3"


def cards(count: int, product: str = H100, memory: str = "80Gi", nics: int = 0, **spec: Any) -> Obj:
    """A pool of static cards and NICs on one node."""
    gpus = [
        {"name": f"g{at}", "attributes": {"productName": product, "numaNode": at % 2}, "capacity": {"memory": memory}}
        for at in range(count)
    ]
    found = [{"name": "gpu", "type": "GPU", "source": {"static": {"nodes": [{"name": "n1", "devices": gpus}]}}}]
    if nics:
        there = [{"name": f"nic{at}", "attributes": {"numaNode": at % 2}} for at in range(nics)]
        found.append(
            {"name": "nic", "type": "RDMA", "source": {"static": {"nodes": [{"name": "n1", "devices": there}]}}}
        )
    return devicepool("p", devices=found, spec=spec)


def share(name: str, mode: str, device: str = "gpu", **spec: Any) -> Obj:
    body = {"poolRef": {"name": "p"}, "device": device, "mode": mode, **spec}
    return {"apiVersion": "adjoin.dev/v1alpha1", "kind": "DeviceShare", "metadata": {"name": name}, "spec": body}


def slots(number: int, name: str = "ts", **spec: Any) -> Obj:
    return share(name, "TimeSliced", timeSliced={"slots": number}, **spec)


def layout(name: str = "mig", **counts: int) -> Obj:
    """A static layout; `g1_10` is 1g.10gb."""
    entries = [
        {"profile": f"{each[1]}g.{each.partition('_')[2]}gb", "count": number} for each, number in counts.items()
    ]
    return share(name, "Partitioned", partitioned={"layout": entries})


def dynamic(*profiles: str, name: str = "mig") -> Obj:
    return share(name, "Partitioned", partitioned={"dynamic": {"profiles": list(profiles)}})


def claim(name: str, *requests: Mapping[str, Any], status: Sequence[Mapping[str, Any]] = (), **spec: Any) -> Obj:
    """A claim; `status` are devices that it holds."""
    made: Obj = {
        "apiVersion": "adjoin.dev/v1alpha1",
        "kind": "DeviceClaim",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"poolRef": {"name": "p"}, "requests": list(requests), **spec},
    }
    if status:
        replica = {"index": 0, "node": "n1", "state": "Ready", "devices": list(status)}
        made["status"] = {"phase": "Ready", "allocation": {"replicas": [replica]}}
    return made


def part(share_name: str, count: int = 1, **asked: Any) -> Obj:
    outer = {key: asked.pop(key) for key in ("sameDevice", "isolation", "device") if key in asked}
    return {"name": "gpu", "count": count, "share": {"name": share_name, **asked}, **outer}


def held(device: str, share_name: str = "", **told: Any) -> Obj:
    entry: Obj = {"request": "gpu", "driver": "adjoin.dev", "pool": "n1", "device": device}
    return {**entry, "share": {"name": share_name, **told}} if share_name else entry


def of_share(ran: Ran, name: str) -> Obj:
    found: Obj = next(each for each in ran.shown["shares"] if each["name"] == name)
    return found


def condition(ran: Ran, name: str, kind: str) -> str:
    """The message of a share's condition that is True, or ""."""
    found = of_share(ran, name)["conditions"]
    return next((each["message"] for each in found if each["type"] == kind and each["status"] == "True"), "")


def parts_of(ran: Ran, name: str) -> list[tuple[str, Obj]]:
    """Devices and shares of a claim's first replica."""
    return [(each["device"], each["share"]) for each in ran.claims[name]["replicas"][0]["devices"]]


def test_b3_more_slots_than_a_device_has_are_refused_with_the_rule() -> None:
    ran = plan_objects([cards(2), slots(4), claim("c", part("ts", slots=5))])
    (reason,) = ran.claims["c"]["reasons"]
    assert (ran.status, reason["code"]) == (3, "InvalidClaim")
    assert "more slots are no more devices: several devices are asked for with count" in reason["message"]


@pytest.mark.parametrize(("number", "codes"), [(10, []), (11, ["ShareUnavailable"])], ids=["ten fit", "eleven do not"])
def test_b4_cards_are_filled_by_what_each_has_left(number: int, codes: list[str]) -> None:
    """A card of two slots and one of eight: ten claims for one each."""
    chosen = [{"cel": "device.attributes['adjoin.dev'].numaNode == 0"}]
    others = [{"cel": "device.attributes['adjoin.dev'].numaNode == 1"}]
    shares = [slots(2, "two", selectors=chosen), slots(8, "eight", selectors=others)]
    either = {"name": "gpu", "firstOf": [{"name": each, "share": {"name": each}} for each in ("two", "eight")]}
    claims = [claim(f"c{at:02}", either) for at in range(number)]
    ran = plan_objects([cards(2), *shares, *claims])
    used = [parts_of(ran, f"c{at:02}")[0][0] for at in range(10)]
    assert (used.count("g0"), used.count("g1")) == (2, 8)
    assert [code for at in range(number) for code in ran.codes(f"c{at:02}")][:1] == codes


@pytest.mark.parametrize(
    ("mode", "settings", "asked", "isolation"),
    [
        ("TimeSliced", {"timeSliced": {"slots": 4}}, {}, "Cooperative"),
        ("MPS", {}, {"memory": "8Gi"}, "Hard"),
        ("Fractional", {}, {"compute": "250m"}, "Hard"),
    ],
)
def test_b5_who_asks_for_more_isolation_than_a_mode_has_is_refused(
    mode: str, settings: Obj, asked: Obj, isolation: str
) -> None:
    objects = [cards(1), share("soft", mode, **settings)]
    ran = plan_objects([*objects, claim("c", part("soft", isolation=isolation, **asked))])
    assert ran.codes("c") == ["IsolationUnavailable"]
    less = plan_objects([*objects, claim("c", part("soft", **asked))])
    assert less.codes("c") == []


def test_b5_hard_is_met_by_a_partition_where_a_soft_alternative_comes_first() -> None:
    request = {
        "name": "gpu",
        "firstOf": [
            {"name": "soft", "share": {"name": "mps", "memory": "8Gi"}, "isolation": "Hard"},
            {"name": "hard", "share": {"name": "mig", "profile": "1g.10gb"}, "isolation": "Hard"},
        ],
    }
    ran = plan_objects([cards(1), share("mps", "MPS"), dynamic("1g.10gb"), claim("c", request)])
    assert list(ran.devices("c")) == ["gpu/hard"]


@pytest.mark.parametrize(
    ("made", "asked", "each"),
    [
        (slots(4, "s"), {"slots": 1}, 250),
        (share("s", "MPS", mps={"maxClients": 8, "minReserve": "0", "reserve": "0%"}), {"memory": "20Gi"}, 250),
        (dynamic("1g.10gb", name="s"), {"profile": "1g.10gb"}, 143),
    ],
    ids=["slots", "MPS", "partitions"],
)
def test_b9_one_shared_card_is_one_device_and_each_part_is_charged_once(made: Obj, asked: Obj, each: int) -> None:
    """Three sharers, the third after a restart; the quota is just what they cost, and one thousandth less is not
    enough for all.
    """
    claims = [claim(f"c{at}", part("s", **asked)) for at in range(3)]
    first = plan_objects([cards(1), made, *claims[:2]])
    objects = [*with_status([cards(1), made, *claims[:2]], first), claims[2]]
    later = plan_objects(objects)
    assert later.claims["c2"]["phase"] == "Allocated"
    assert later.counts("p", "gpu")["allocated"] == 1
    at_once = plan_objects([cards(1), made, *claims])
    assert {name: parts_of(at_once, name) for name in at_once.claims} == {
        name: parts_of(later, name) for name in later.claims
    }
    assert 3 * each <= 1000


def test_b10_partitions_cost_their_largest_fraction_rounded_up() -> None:
    """A quota of one card: seven of 1g (143 thousandths each) are one too many, six are not; two 3g (500) just fit."""
    tenants = {"tenants": [{"name": "team", "namespaces": ["team"], "quota": {"gpu": 1}}]}
    pool = cards(3, tenancy=tenants)
    for profile, number, placed in (("1g.10gb", 7, 6), ("3g.40gb", 3, 2), ("2g.20gb", 4, 3)):
        claims = [claim(f"c{at}", part("mig", profile=profile)) for at in range(number)]
        ran = plan_objects([pool, dynamic("1g.10gb", "2g.20gb", "3g.40gb"), *claims])
        assert [bool(ran.claims[f"c{at}"]["replicas"]) for at in range(number)] == [True] * placed + [False]
        assert ran.codes(f"c{placed}") == ["QuotaExceeded"]


def test_b10_two_functions_and_two_slots_cost_what_they_are_of_a_device() -> None:
    tenants = {"tenants": [{"name": "team", "namespaces": ["team"], "quota": {"gpu": 1, "nic": 1}}]}
    pool = cards(2, nics=2, tenancy=tenants)
    functions = share("vf", "VirtualFunctions", "nic", virtualFunctions={"count": 3})
    asked = {"name": "nic", "share": {"name": "vf"}}
    claims = [claim(f"f{at}", asked) for at in range(3)] + [claim(f"s{at}", part("ts", slots=2)) for at in range(3)]
    ran = plan_objects([pool, functions, slots(4), *claims])
    # A third of a device is 334 thousandths.
    assert [ran.codes(f"f{at}") for at in range(3)] == [[], [], ["QuotaExceeded"]]
    assert [ran.codes(f"s{at}") for at in range(3)] == [[], [], ["QuotaExceeded"]]


def test_b11_a_share_that_shrinks_evicts_nobody_and_gives_nothing_until_use_has_dropped() -> None:
    """Four slots, three in use, edited to two; then grown to six."""
    users = [claim(f"u{at}", part("ts"), status=[held("g0", "ts", slots=1)]) for at in range(3)]
    new = claim("new", part("ts"))
    shrunk = plan_objects([cards(1), slots(2), *users, new])
    assert [shrunk.claims[f"u{at}"]["phase"] for at in range(3)] == ["Ready"] * 3
    assert condition(shrunk, "ts", "OverSubscribed") == "3/2 slots of n1/g0 are in use"
    assert shrunk.codes("new") == ["ShareUnavailable"]
    assert "free 0 slots" in shrunk.claims["new"]["reasons"][0]["message"]
    two = plan_objects([cards(1), slots(2), *users[:2], new])
    assert (two.codes("new"), condition(two, "ts", "OverSubscribed")) == (["ShareUnavailable"], "")
    one = plan_objects([cards(1), slots(2), *users[:1], new])
    assert one.codes("new") == []
    grown = plan_objects([cards(1), slots(6), *users, new])
    assert (grown.codes("new"), condition(grown, "ts", "OverSubscribed")) == ([], "")


MIXED = [held("g0", "mig", profile="1g.10gb", start=5)]


def test_b12_a_busy_partition_stays_where_it_is_when_the_new_layout_has_it() -> None:
    """2 × 1g + 2g + 3g with one 1g busy becomes 7 × 1g around it."""
    busy = claim("busy", part("mig", profile="1g.10gb"), status=MIXED)
    more = [claim(f"c{at}", part("mig", profile="1g.10gb")) for at in range(7)]
    ran = plan_objects([cards(1), layout(g1_10=7), busy, *more])
    assert condition(ran, "mig", "InUse") == ""
    assert parts_of(ran, "busy") == [("g0", {"name": "mig", "profile": "1g.10gb", "start": 5})]
    starts = [parts_of(ran, f"c{at}")[0][1]["start"] for at in range(6)]
    assert sorted([*starts, 5]) == list(range(7))
    assert ran.codes("c6") == ["ShareUnavailable"]
    ((placement),) = of_share(ran, "mig")["placements"]
    assert [each["start"] for each in placement["partitions"]] == list(range(7))


def test_b12_what_cannot_keep_a_busy_partition_names_its_claim_and_changes_nothing() -> None:
    busy = claim("busy", part("mig", profile="1g.10gb"), status=MIXED)
    ran = plan_objects([cards(2), layout(g3_40=2), busy, claim("new", part("mig", profile="3g.40gb"))])
    message = condition(ran, "mig", "InUse")
    assert message.startswith("n1/g0: ")
    assert message.endswith("in use by team/busy")
    assert ran.claims["busy"]["phase"] == "Ready"
    assert parts_of(ran, "new")[0][0] == "g1"
    placements = {each["device"]: each["partitions"] for each in of_share(ran, "mig")["placements"]}
    assert placements["g0"] == [{"profile": "1g.10gb", "start": 5, "size": 1}]


REFUSED = {
    "more memory than a card has": ({"g3_40": 2, "g1_10": 1}, H100, "memory slices"),
    "more compute than a card has": ({"g4_40": 1, "g1_20": 4}, H100, "memory slices"),
    "compute alone": ({"g4_40": 2}, H100, "compute slices"),
    "slices that are enough but cannot be arranged": ({"g1_20": 1, "g2_20": 3, "g1_10": 1}, H100, "memory slices"),
    "a product that is not known": ({"g1_10": 1}, "Tesla T4", "product Tesla T4 unknown"),
    "a profile of another product": ({"g1_5": 1}, H100, "profile 1g.5gb unknown"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_b13_a_layout_that_no_card_takes_is_refused_and_others_work_on(case: str) -> None:
    """Refused shares are exit 3, even where nobody asks for them, and the message says what does not fit."""
    counts, product, words = REFUSED[case]
    objects = [cards(2, product), layout("bad", **counts), slots(2), claim("c", part("ts"))]
    ran = plan_objects(objects)
    found = of_share(ran, "bad")
    assert (ran.status, found["accepted"], found["placements"]) == (3, False, [])
    assert found["message"].startswith("n1/g0: ")
    assert words in found["message"]
    assert ran.claims["c"]["phase"] == "Allocated"
    assert of_share(ran, "ts")["accepted"]
    asking = plan_objects([*objects, claim("waits", part("bad", profile=next(iter_profiles(counts))))])
    assert asking.codes("waits") == ["ShareUnavailable"]
    assert words in asking.claims["waits"]["reasons"][0]["message"]


def iter_profiles(counts: Mapping[str, int]) -> Any:
    return (f"{each[1]}g.{each.partition('_')[2]}gb" for each in counts)


def test_b13_the_order_of_a_layout_does_not_matter() -> None:
    shown = []
    for counts in ({"g3_40": 1, "g1_10": 4}, {"g1_10": 4, "g3_40": 1}):
        ran = plan_objects([cards(1), layout(**counts), claim("c", part("mig", profile="3g.40gb"))])
        shown.append((ran.status, of_share(ran, "mig"), parts_of(ran, "c")))
    assert shown[0] == shown[1]
    assert shown[0][0] == 0


def test_b14_a_card_is_in_one_mode_until_nobody_has_any_of_it() -> None:
    mps = share("mps", "MPS")
    user = claim("user", part("mps", memory="8Gi"), status=[held("g0", "mps", memory=8 << 30)])
    wants = claim("wants", part("mig", profile="1g.10gb"))
    ran = plan_objects([cards(1), mps, dynamic("1g.10gb"), user, wants])
    assert ran.codes("wants") == ["ShareUnavailable"]
    assert ran.claims["wants"]["nearest"] == "fits once DeviceClaim team/user ends"
    assert plan_objects([cards(1), mps, dynamic("1g.10gb"), wants]).codes("wants") == []


@pytest.mark.parametrize(
    "asked",
    [{"memory": "8Gi"}, {"compute": "100m"}, {"profile": "1g.10gb"}, {"slots": 1, "memory": "8Gi"}, {"gpumem": 1}],
    ids=str,
)
def test_b15_what_a_share_does_not_know_is_refused_and_never_a_whole_card(asked: Obj) -> None:
    ran = plan_objects([cards(1), slots(4), claim("c", part("ts", **asked))])
    if ran.status == 2:
        assert "share" in ran.err
        return
    assert ran.codes("c") == ["InvalidClaim"]
    assert ran.counts("p", "gpu")["free"] == 1


def test_b16_counts_are_physical_devices_whatever_they_are_cut_into() -> None:
    claims = [claim(f"c{at}", part("mig", profile="1g.10gb")) for at in range(3)]
    ran = plan_objects([cards(3), dynamic("1g.10gb", "3g.40gb"), *claims, claim("whole", {"name": "gpu"})])
    counts = ran.counts("p", "gpu")
    assert (counts["capacity"], counts["allocated"], counts["free"]) == (3, 2, 1)
    ((placement),) = of_share(ran, "mig")["placements"]
    assert [each["profile"] for each in placement["partitions"]] == ["1g.10gb"] * 3


def test_a18_small_partitions_leave_room_for_a_large_one_and_a_scattered_card_is_fragmented() -> None:
    ones = [claim(f"c{at}", part("mig", profile="1g.10gb")) for at in range(3)]
    share_ = dynamic("1g.10gb", "3g.40gb")
    ran = plan_objects([cards(1), share_, *ones, claim("big", part("mig", profile="3g.40gb"))])
    assert ran.codes("big") == []
    scattered = [
        claim(f"c{at}", part("mig", profile="1g.10gb"), status=[held("g0", "mig", profile="1g.10gb", start=start)])
        for at, start in enumerate((0, 1, 5))
    ]
    ran = plan_objects([cards(1), share_, *scattered, claim("big", part("mig", profile="3g.40gb"))])
    assert ran.claims["big"]["phase"] == "Pending"
    assert ran.codes("big") == ["ShareUnavailable", "Fragmented"]
    message = ran.claims["big"]["reasons"][1]["message"]
    assert "5 memory slices are free on 1 gpu, but not together" in message
    assert message.endswith("n1/g0 would have room without 1g.10gb at 5 of team/c2")


def test_a28_no_more_is_booked_than_is_given() -> None:
    """One and a half cards are not a part: refused where it is written, or nothing of any card is taken for it."""
    refused = plan_objects([cards(3), share("mps", "MPS"), claim("c", part("mps", compute="1500m"))])
    assert refused.status == 2
    assert "compute" in refused.err
    ran = plan_objects([cards(3), share("mps", "MPS"), claim("c", part("mps", memory="120Gi"))])
    assert ran.claims["c"]["phase"] == "Pending"
    assert ran.counts("p", "gpu")["free"] == 3


def test_partitions_on_their_way_back_are_said_to_help() -> None:
    """One of two on a card is being released; with it gone a larger one fits."""
    kept = claim("kept", part("mig", profile="3g.40gb"), status=[held("g0", "mig", profile="3g.40gb", start=0)])
    going = claim("going", part("mig", profile="1g.10gb"), status=[held("g0", "mig", profile="1g.10gb", start=5)])
    going["metadata"].update({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["adjoin.dev/cleanup"]})
    wants = claim("wants", part("mig", profile="3g.40gb"))
    ran = plan_objects([cards(1), dynamic("1g.10gb", "3g.40gb"), kept, going, wants])
    assert ran.codes("wants")[0] == "DeviceReleasing"


PREEMPTED = {
    "slots": (slots(2, "s"), {"slots": 2}, {"slots": 1}),
    "MPS": (share("s", "MPS"), {"compute": 1000}, {"compute": "500m"}),
    "partitions": (
        dynamic("7g.80gb", "3g.40gb", name="s"),
        {"profile": "7g.80gb", "start": 0},
        {"profile": "3g.40gb"},
    ),
}


@pytest.mark.parametrize("case", PREEMPTED)
def test_f12_what_a_victim_has_of_a_card_counts_as_freed(case: str) -> None:
    made, low, high = PREEMPTED[case]
    pool = cards(1, tenancy={"preemption": {"withinTenant": "LowerPriority"}})
    asked = {key: f"{value}m" if key == "compute" else value for key, value in low.items() if key != "start"}
    victim = claim("low", part("s", **asked), status=[held("g0", "s", **low)])
    ran = plan_objects([pool, made, victim, claim("high", part("s", **high), priority=5)])
    assert [(each["name"], each["by"]["name"]) for each in ran.shown["preempted"]] == [("low", "high")]
    assert ran.codes("high") == ["DeviceReleasing"]
    ((nominated),) = ran.claims["high"]["nominated"]
    assert [each["device"] for each in nominated["devices"]] == ["g0"]


def test_f10_freed_parts_that_are_not_on_one_card_evict_nobody() -> None:
    """Half of each of two cards would come free, and a whole card is asked for."""
    pool = cards(2, tenancy={"preemption": {"withinTenant": "LowerPriority"}})
    low = [claim(f"low{at}", part("ts", slots=1), status=[held(f"g{at}", "ts", slots=1)]) for at in range(2)]
    kept = [
        claim(f"kept{at}", part("ts"), status=[held(f"g{at}", "ts", slots=1)], preemptible=False) for at in range(2)
    ]
    ran = plan_objects([pool, slots(2), *low, *kept, claim("high", part("ts", slots=2), priority=5)])
    assert ran.shown["preempted"] == []
    assert ran.claims["high"]["nominated"] == []


def test_e13_what_refers_to_a_share_or_pool_that_is_not_there_waits_and_says_so() -> None:
    ran = plan_objects([cards(1), claim("c", part("none"))])
    assert (ran.status, ran.codes("c")) == (3, ["ShareUnavailable"])
    assert ran.claims["c"]["reasons"][0]["message"] == "there is no DeviceShare none"
    lost = share("lost", "Fractional")
    lost["spec"]["poolRef"]["name"] = "other"
    ran = plan_objects([cards(1), lost])
    assert (ran.status, of_share(ran, "lost")["accepted"]) == (3, False)


ODD = (
    float("nan"),
    float("inf"),
    -1,
    0,
    1e308,
    "0x10",
    "",
    "٣",
    "１",
    2**31,
    2**63,
    "NaN",
    "-1",
    "1e400",
    "∞",
    True,
    [],
    {},
)
FIELDS = {
    "count": lambda odd: part("ts", odd),
    "slots": lambda odd: part("ts", slots=odd),
    "memory": lambda odd: part("mps", memory=odd),
    "compute": lambda odd: part("mps", compute=odd),
    "profile": lambda odd: part("mig", profile=odd),
}


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("field", FIELDS)
def test_g12_odd_amounts_are_refused_where_they_are_written(field: str, odd: Any) -> None:
    """Exit 2 with file, document and field; a name that is no profile of the share waits for ever and says why."""
    shares = [slots(4), share("mps", "MPS"), dynamic("1g.10gb")]
    text = yaml.safe_dump_all([cards(1), *shares, claim("c", FIELDS[field](odd))], allow_unicode=True)
    ran = run_plan("-f", "-", "-o", "json", stdin=text)
    if field == "profile" and isinstance(odd, str) and odd and "is not a JSON number" not in ran.err:
        assert (ran.status, ran.codes("c")) == (3, ["InvalidClaim"])
    elif field == "memory" and odd == 2**31:
        # Two gibibytes are not odd.
        assert ran.status == 0
    elif field in ("memory", "compute") and odd in (1e308, 2**31, 2**63) and odd is not True:
        # These are quantities, only far too large.
        assert ran.status == 2 or ran.claims["c"]["phase"] == "Pending"
    else:
        assert ran.status == 2, ran.out
        assert field in ran.err or "is not a JSON number" in ran.err


def test_tables_say_which_part_of_a_device_a_replica_has() -> None:
    functions = share("vf", "VirtualFunctions", "nic", virtualFunctions={"count": 4})
    objects = [
        cards(4, nics=1),
        dynamic("1g.10gb"),
        slots(4),
        share("mps", "MPS"),
        functions,
        claim("a", part("mig", profile="1g.10gb")),
        claim("b", part("ts", slots=2)),
        claim("c", part("mps", memory="8Gi", compute="250m")),
        claim("d", {"name": "nic", "share": {"name": "vf"}}),
        claim("e", {"name": "gpu"}),
        claim("f", part("ts")),
    ]
    text = yaml.safe_dump_all(objects)
    shown = run_plan("-f", "-", stdin=text).out
    for words in ("(1g.10gb at 0)", "(2 slots)", "(8Gi, 250m)", "nic: nic0 (vf 0)", "(1 slot)"):
        assert words in shown
    (whole,) = [line for line in shown.splitlines() if line.startswith("team/e")]
    assert "(" not in whole


@pytest.mark.parametrize(
    ("older", "most", "told"),
    [
        ("ts", None, {"frac": "adjoin.dev/n1/g0, adjoin.dev/n1/g1", "ts": ""}),
        ("frac", 1, {"frac": "", "ts": "adjoin.dev/n1/g0"}),
        ("frac", None, {"frac": "", "ts": "adjoin.dev/n1/g0, adjoin.dev/n1/g1"}),
    ],
    ids=["the younger yields both", "only what the older takes", "whatever the names"],
)
def test_shares_that_prepare_the_same_devices_overlap(older: str, most: int | None, told: Mapping[str, str]) -> None:
    shares = [slots(4, prepare="Eager", maxDevices=most), share("frac", "Fractional", prepare="Eager", maxDevices=most)]
    for each in shares:
        day = 1 if each["metadata"]["name"] == older else 2
        each["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
    for objects in ([cards(2), *shares], [*reversed(shares), cards(2)]):
        ran = plan_objects(objects)
        said = {name: condition(ran, name, "Overlap") for name in told}
        assert {name: text.rpartition(": ")[2] for name, text in said.items()} == told


def test_a_deleted_share_says_who_keeps_it() -> None:
    gone = slots(4)
    gone["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["adjoin.dev/cleanup"]}
    ran = plan_objects([cards(1), gone, claim("a", part("ts"), status=[held("g0", "ts", slots=1)])])
    assert condition(ran, "ts", "InUse") == "it goes when its parts do: team/a"


def test_a_card_that_a_dwell_keeps_from_being_given_whole_is_told() -> None:
    entry = {"driver": "adjoin.dev", "pool": "n1", "device": "g0", "node": "n1", "since": "2026-01-01T00:00:00Z"}
    there = {**slots(4, dwell="10m"), "status": {"placements": [entry]}}
    objects = [cards(2), there, claim("w", {"name": "gpu", "count": 2})]
    ran = plan_objects(objects, "--now", "2026-01-01T00:05:00Z")
    (reason,) = ran.claims["w"]["reasons"]
    assert reason["code"] == "InsufficientDevices"
    assert reason["message"] == "needs 2 gpu, 1 of 2 free (1 held by the dwell of DeviceShare ts)"
    busy = claim("x", part("ts"), status=[held("g0", "ts", slots=1)])
    (reason,) = plan_objects([*objects, busy], "--now", "2026-01-01T00:05:00Z").claims["w"]["reasons"]
    assert reason["message"] == "needs 2 gpu, 1 of 2 free"
    assert plan_objects(objects, "--now", "2026-01-01T00:10:00Z").status == 0
