"""What every test on a real control plane shares: one control plane for the whole run, and a namespace for each test.

Programs that are missing are built before the first test, with progress on the terminal, so that no test's time limit
has to cover a build. When a test fails that used the control plane, its logs outlive it; the last lines of the run say
where they are.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from tests.controlplane import BuildError, ControlPlane, Group, Options, ensure
from tests.support.double_use import Recorder
from tests.support.installation import Installation, installed
from tests.support.site import Site
from tests.support.terminal import uncaptured
from tests.support.waiting import eventually

HERE = Path(__file__).parent
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("cluster")


def pytest_collection_finish(session: pytest.Session) -> None:
    here = any(item.path.is_relative_to(HERE) for item in session.items)
    if not here or session.config.option.collectonly:
        return
    # What cannot be built fails the tests that need it, with this very error.
    with uncaptured(session.config), contextlib.suppress(BuildError):
        ensure(Group.CONTROLPLANE, Group.KWOK, Group.HELM)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for value in item.funcargs.values():
            if isinstance(value, ControlPlane):
                value.failed = True
    return report


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The control plane that tests share; started when the first test asks for it.

    With an audit log, everything else as shipped. A test that needs another one, or that stops components, starts its
    own.
    """

    def report(line: str) -> None:
        with uncaptured(request.config):
            print(f"\n{line}", file=sys.stderr, flush=True)

    plane = ControlPlane(Options(audit=True), name="shared", report=report)
    with plane:
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A fresh namespace in which pods can be created; deleted afterwards, without waiting for its end."""
    name = f"test-{next(_numbers)}"
    control_plane.request(
        "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    )
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    eventually(
        lambda: [account["metadata"]["name"] for account in control_plane.request("GET", accounts)["items"]],
        lambda names: "default" in names,
        what="the namespace's default ServiceAccount",
    )
    yield name
    control_plane.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def installation(control_plane: ControlPlane) -> Iterator[Installation]:
    """Adjoin's charts on the shared control plane. A test that needs the operator asks for `adjoin` or `site`."""
    with installed(control_plane) as made:
        yield made


@pytest.fixture
def adjoin(installation: Installation) -> Iterator[Installation]:
    """The installation with an operator that runs and is ready; a watcher looks for double use as long as the test
    lasts.

    A test may kill operators and start others; the next test finds a running one.
    """
    if not any(operator.process.poll() is None for operator in installation.operators):
        installation.start_operator()
    with Recorder(installation.plane) as recorder:
        yield installation
        recorder.catch_up()
    assert recorder.violations() == []


@pytest.fixture
def site(adjoin: Installation) -> Iterator[Site]:
    """A corner of the cluster of the test's own: namespace, machines, pool."""
    made = Site.open(adjoin.plane, "t")
    yield made
    made.close()
