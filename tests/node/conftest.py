"""What every test on a real node shares: one control plane, one node with two drivers, Adjoin installed by its charts.

These tests run only when asked for (`make test-node`, or `pytest -m node` as root): they need root and programs that
the other tests do not. Everything runs in a network namespace made for them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from tests.controlplane import ControlPlane, Group, Options, ensure
from tests.node.calls import overlaps
from tests.node.network import GATEWAY, own_network
from tests.node.node import EXAMPLE_DRIVER, TEST_DRIVER, Node, provide
from tests.node.requirements import refusal
from tests.support.double_use import Recorder, allocated
from tests.support.installation import Installation, installed
from tests.support.site import Site
from tests.support.terminal import uncaptured

HERE = Path(__file__).parent
DRIVERS = (TEST_DRIVER, EXAMPLE_DRIVER)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    for item in ours:
        item.add_marker("node")
    if ours and not re.search(r"\bnode\b", config.option.markexpr):
        items[:] = [item for item in items if item not in ours]
        config.hook.pytest_deselected(items=ours)


def pytest_collection_finish(session: pytest.Session) -> None:
    here = any(item.path.is_relative_to(HERE) for item in session.items)
    if not here or session.config.option.collectonly:
        return
    if refusal():
        raise pytest.UsageError(refusal())
    # Now, since there is no network in the namespace of the tests.
    with uncaptured(session.config):
        ensure(Group.CONTROLPLANE, Group.HELM)
        provide()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for value in item.funcargs.values():
            if isinstance(value, (ControlPlane, Node)):
                value.failed = True
    return report


@pytest.fixture(scope="session")
def network() -> Iterator[None]:
    """The network namespace of all tests here."""
    with own_network():
        yield


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest, network: None) -> Iterator[ControlPlane]:
    """A control plane that real kubelets reach; no simulated nodes."""

    def report(line: str) -> None:
        with uncaptured(request.config):
            print(f"\n{line}", file=sys.stderr, flush=True)

    # The example driver speaks an older version of the API.
    options = Options(kwok=False, gateway=GATEWAY, runtime_config={"resource.k8s.io/v1beta1": True}, audit=True)
    with ControlPlane(options, name="for-node", report=report) as plane:
        yield plane


@pytest.fixture(scope="session")
def shared_node(control_plane: ControlPlane) -> Iterator[Node]:
    """The node, with two drivers of four devices each."""
    with Node(control_plane) as made:
        for driver in DRIVERS:
            made.start_driver(driver)
        yield made


@pytest.fixture
def node(shared_node: Node) -> Node:
    """The node as a test may expect it: with kubelet and drivers running, whatever the test before has done."""
    shared_node.repair(*DRIVERS)
    return shared_node


@pytest.fixture(scope="session")
def installation(control_plane: ControlPlane) -> Iterator[Installation]:
    """Adjoin's charts on the control plane."""
    with installed(control_plane) as made:
        yield made


@pytest.fixture
def recorder(node: Node, installation: Installation) -> Iterator[Recorder]:
    """Watches, with an operator that runs. Afterwards no device was ever in two hands by what the API said."""
    if not any(operator.process.poll() is None for operator in installation.operators):
        installation.start_operator()
    with Recorder(installation.plane) as watching:
        yield watching
        watching.catch_up()
    assert watching.violations() == []


@pytest.fixture
def corner(node: Node, recorder: Recorder) -> Iterator[Site]:
    """A namespace of the test's own; pools are made by the test."""
    made = Site.open(node.plane, "real")
    yield made
    # Pods do not end while their driver is away.
    node.repair(*DRIVERS)
    made.close()


@pytest.fixture
def site(corner: Site, node: Node, recorder: Recorder) -> Iterator[Site]:
    """The same. Afterwards no device was ever in two hands by what the kubelet asked of the drivers either."""
    yield corner
    recorder.catch_up()
    given = {
        change.obj["metadata"]["uid"]: allocated(change.obj)
        for change in recorder.changes
        if change.kind == "ResourceClaim" and allocated(change.obj)
    }
    for driver in DRIVERS:
        names = {uid: [name for by, _, name in devices if by == driver.name] for uid, devices in given.items()}
        assert overlaps(node.calls(driver), names) == []
