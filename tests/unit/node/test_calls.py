"""The reader of drivers' logs, which judges every test on a real node: it must see what is there, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.node.calls import Call, Verb, overlaps, read_calls

A, B, C = (f"{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "abc")
SERVICE = "/k8s.io.kubelet.pkg.apis.dra"


def line(verb: str, what: str, text: str, version: str = "v1") -> str:
    """As Kubernetes' library for drivers writes it."""
    word = "response" if "succeeded" in what else "request"
    return (
        f'I1130 19:15:21.558421      57 server.go:150] "{what}" logger="dra" requestID=4 '
        f'method="{SERVICE}.{version}.DRAPlugin/Node{verb}Resources" {word}="{text}"'
    )


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        pytest.param([], [], id="nothing was asked"),
        pytest.param(
            [line("Prepare", "handling request", f'claims:{{uid:\\"{A}\\"}}')],
            [Call(Verb.PREPARE, frozenset({A}))],
            id="a preparation counts from its request on",
        ),
        pytest.param(
            [line("Prepare", "handling request succeeded", f'claims:{{key:\\"{A}\\" value:{{}}}}')],
            [],
            id="the answer to a preparation says nothing new",
        ),
        pytest.param(
            [line("Unprepare", "handling request", f'claims:{{uid:\\"{A}\\"}}')],
            [],
            id="an end that was only asked for is none",
        ),
        pytest.param(
            [line("Unprepare", "handling request succeeded", f'claims:{{key:\\"{A}\\" value:{{}}}}')],
            [Call(Verb.UNPREPARE, frozenset({A}))],
            id="an end counts from the answer on",
        ),
        pytest.param(
            [line("Unprepare", "handling request succeeded", f'claims:{{key:\\"{A}\\" value:{{error:\\"busy\\"}}}}')],
            [],
            id="an end that the driver refused is none",
        ),
        pytest.param(
            [
                line("Prepare", "handling request", f"&R{{Claims:[]*Claim{{&Claim{{UID:{A},}},}}}}", "v1beta1"),
                line(
                    "Unprepare", "handling request succeeded", f"&R{{map[string]*N{{{A}: &N{{Error:,}}}}}}", "v1beta1"
                ),
            ],
            [Call(Verb.PREPARE, frozenset({A})), Call(Verb.UNPREPARE, frozenset({A}))],
            id="an older driver writes it another way",
        ),
        pytest.param(
            [line("Prepare", "handling request", f'claims:{{uid:\\"{A}\\"}} claims:{{uid:\\"{B}\\"}}')],
            [Call(Verb.PREPARE, frozenset({A, B}))],
            id="two ResourceClaims in one request",
        ),
        pytest.param([line("WatchPrepare", "handling request", A)], [], id="another method"),
    ],
)
def test_calls_are_read_from_a_log(log: list[str], expected: list[Call]) -> None:
    assert read_calls("\n".join(log)) == expected


def prepare(*claims: str) -> Call:
    return Call(Verb.PREPARE, frozenset(claims))


def unprepare(*claims: str) -> Call:
    return Call(Verb.UNPREPARE, frozenset(claims))


DEVICES = {A: ["d0", "d1"], B: ["d1"], C: ["d2"]}


@pytest.mark.parametrize(
    ("calls", "devices", "expected"),
    [
        pytest.param([prepare(A), unprepare(A), prepare(B)], DEVICES, [], id="one after the other"),
        pytest.param([prepare(A), prepare(C)], DEVICES, [], id="different devices at once"),
        pytest.param([prepare(A), prepare(A)], DEVICES, [], id="the same again, as after a restart of the kubelet"),
        pytest.param([prepare(A), prepare(B)], DEVICES, ["call 1: d1 is prepared for"], id="before the first ended"),
        pytest.param([prepare(A, B)], DEVICES, ["call 0: d1 is prepared for"], id="in one request"),
        pytest.param(
            [prepare(A), prepare(B), unprepare(A), prepare(A)],
            DEVICES,
            ["call 1: d1 is prepared for", "call 3: d1 is prepared for"],
            id="each time",
        ),
        pytest.param([prepare(A), prepare(B)], {}, [], id="ResourceClaims that nobody watched"),
    ],
)
def test_a_device_prepared_twice_is_found(
    calls: list[Call], devices: Mapping[str, list[str]], expected: list[str]
) -> None:
    found = overlaps(calls, devices)
    assert [text.partition(" ['")[0] for text in found] == expected
