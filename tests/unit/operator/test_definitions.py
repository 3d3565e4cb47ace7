"""E7: an operator starts only beside definitions that hold all its fields, and says what is wrong until then."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import orjson
import pytest
import structlog
from aiohttp import web
from tests.support.clock import Background, settled, until, virtual

from adjoin.api.crd import DEFINITIONS, manifest
from adjoin.definitions import Definitions, Fit, compare
from adjoin.kube import Access, Kube, Login

Obj = dict[str, Any]
POOL = next(each for each in DEFINITIONS if each.name == "devicepools.adjoin.dev")


def spec_of(crd: Obj) -> Obj:
    """The schema of `spec` in a definition, to be changed."""
    found: Obj = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def other(change: Callable[[Obj], Any]) -> Obj:
    """The DevicePool's definition as another version has it."""
    crd = copy.deepcopy(manifest(POOL))
    crd["metadata"]["annotations"]["adjoin.dev/schema"] = "0123456789abcdef"
    change(crd)
    return crd


def without_annotation(crd: Obj) -> None:
    del crd["metadata"]["annotations"]


def less(crd: Obj) -> None:
    del spec_of(crd)["properties"]["placement"]["properties"]["objective"]


def fewer_values(crd: Obj) -> None:
    spec_of(crd)["properties"]["devices"]["items"]["properties"]["type"]["enum"].remove("RDMA")


def more(crd: Obj) -> None:
    spec_of(crd)["properties"]["colour"] = {"type": "string"}


def reworded(crd: Obj) -> None:
    spec_of(crd)["description"] = "Something else."


@pytest.mark.parametrize(
    ("installed", "fit"),
    [
        pytest.param(manifest(POOL), Fit(), id="our own"),
        pytest.param(other(less), Fit(("spec.placement.objective",), (), False), id="a field is missing"),
        pytest.param(other(fewer_values), Fit(("spec.devices[].type=RDMA",), (), False), id="a value is missing"),
        pytest.param(other(more), Fit((), ("spec.colour",), False), id="a field more"),
        pytest.param(other(reworded), Fit((), (), False), id="other words"),
        pytest.param(other(without_annotation), Fit((), (), False), id="ours without its fingerprint"),
    ],
)
def test_how_a_definition_compares(installed: Obj, fit: Fit) -> None:
    assert compare(POOL, installed) == fit


class Server:
    """Serves kinds and their definitions; what is not set is not found, None is forbidden."""

    def __init__(self) -> None:
        self.kinds: list[str] | None = None
        self.crds: dict[str, Obj | None] = {each.name: manifest(each) for each in DEFINITIONS}
        self.port = 0

    async def __aenter__(self) -> Server:
        self._runner = web.ServerRunner(web.Server(self.answer))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        path, name = request.path.rsplit("/", 1)
        if request.path == "/apis/adjoin.dev/v1alpha1" and self.kinds is not None:
            names = [{"name": each} for plural in self.kinds for each in (plural, f"{plural}/status")]
            return web.Response(body=orjson.dumps({"resources": names}))
        if path == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" and name in self.crds:
            crd = self.crds[name]
            return web.Response(status=403) if crd is None else web.Response(body=orjson.dumps(crd))
        return web.Response(status=404, text="404 page not found")

    def client(self) -> Kube:
        access = Access(f"http://127.0.0.1:{self.port}", "", None, None, None, True, None, None)

        class Fixed(Login):
            async def access(self) -> Access:
                return access

        return Kube(Fixed())

    def serve_all(self) -> None:
        self.kinds = ["deviceclaims", "devicepools", "deviceshares"]


@virtual
async def test_e7_it_waits_for_its_crds_and_says_what_is_missing() -> None:
    async with Server() as server, server.client() as kube:
        definitions = Definitions(kube)
        with structlog.testing.capture_logs() as logs:
            waiting = Background(definitions.wait())
            async with waiting:
                await settled(10)
                assert definitions.problem == "no kind of the group is served: install the chart adjoin-crds"
                server.kinds = ["deviceclaims", "devicepools"]
                await settled(10)
                assert definitions.problem == "not served: deviceshares: install the chart adjoin-crds"
                server.serve_all()
                await until(waiting.tasks[0].done)
    assert definitions.problem is None
    assert [line["log_level"] for line in logs] == ["error", "error"], "each once"


@virtual
async def test_e7_beside_older_definitions_it_does_not_start_until_they_are_upgraded() -> None:
    """The API server would drop what they lack from specs and status without a word."""
    async with Server() as server, server.client() as kube:
        server.serve_all()
        server.crds[POOL.name] = other(less)
        definitions = Definitions(kube)
        with structlog.testing.capture_logs() as logs:
            waiting = Background(definitions.wait())
            async with waiting:
                await settled(30)
                assert not waiting.tasks[0].done()
                assert definitions.problem is not None
                for word in (POOL.name, "older", "spec.placement.objective", "upgrade the chart adjoin-crds"):
                    assert word in definitions.problem
                server.crds[POOL.name] = manifest(POOL)
                await until(waiting.tasks[0].done)
    assert definitions.problem is None
    assert [line["problem"] for line in logs if line["log_level"] == "error"] == [logs[0]["problem"]]


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        pytest.param(other(more), ["newer", "upgrade the chart adjoin"], id="newer"),
        pytest.param(other(reworded), ["other rules"], id="neither"),
        pytest.param(None, ["cannot be seen", "upgrade the chart adjoin"], id="may not be read"),
    ],
)
@virtual
async def test_e7_beside_other_definitions_it_starts_and_says_so(installed: Obj | None, words: list[str]) -> None:
    async with Server() as server, server.client() as kube:
        server.serve_all()
        server.crds[POOL.name] = installed
        definitions = Definitions(kube)
        with structlog.testing.capture_logs() as logs:
            await definitions.wait()
    assert definitions.problem is None
    (line,) = logs
    assert (line["log_level"], line["crd"]) == ("warning", POOL.name)
    for word in words:
        assert word in line["event"]
