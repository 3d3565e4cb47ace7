"""The client: every answer of the wire has one name, every request an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.clock import Background, loop_time, settled, virtual
from tests.support.fakeapi import FakeApi

from adjoin.intents import Kind
from adjoin.kube import (
    SILENCE_SECONDS,
    WRITE_SECONDS,
    AlreadyExists,
    BadRequest,
    ConfigurationError,
    Conflict,
    Disconnected,
    Forbidden,
    Gone,
    Invalid,
    Kube,
    KubeError,
    Login,
    NotFound,
    OutcomeUnknown,
    Refused,
    TimedOut,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
    path_of,
    refusal,
    version_of,
)

CLAIM = {"metadata": {"namespace": "team", "name": "job"}, "spec": {"a": 1}}


@pytest.mark.parametrize(
    ("status", "body", "kind", "unknown"),
    [
        pytest.param(400, {}, BadRequest, False, id="400"),
        pytest.param(401, {}, Unauthorized, False, id="401"),
        pytest.param(403, {}, Forbidden, False, id="403"),
        pytest.param(404, "404 page not found", NotFound, False, id="404 of the router"),
        pytest.param(409, {"reason": "AlreadyExists"}, AlreadyExists, False, id="409 on creation"),
        pytest.param(409, {"reason": "Conflict"}, Conflict, False, id="409 on a precondition"),
        pytest.param(410, {"reason": "Expired"}, Gone, False, id="410"),
        pytest.param(413, {}, TooLarge, False, id="413"),
        pytest.param(415, {}, BadRequest, False, id="a 4xx without a name of its own"),
        pytest.param(422, {"reason": "Invalid"}, Invalid, False, id="422"),
        pytest.param(429, {}, TooManyRequests, False, id="429"),
        pytest.param(500, {"reason": "InternalError"}, Unavailable, True, id="500"),
        pytest.param(503, "no healthy upstream", Unavailable, True, id="503 of something on the way"),
        pytest.param(504, {"reason": "Timeout"}, Unavailable, True, id="504"),
    ],
)
def test_each_refusal_has_a_name(status: int, body: Any, kind: type[Refused], unknown: bool) -> None:
    error = refusal(status, body)
    assert type(error) is kind
    assert isinstance(error, OutcomeUnknown) is unknown
    assert error.status == status


def test_a_refusal_tells_when_to_come_back_and_why() -> None:
    body = {"details": {"retryAfterSeconds": 7, "causes": [{"reason": "DisruptionBudget"}]}, "message": "later"}
    assert refusal(429, body).retry_after == 7
    assert refusal(429, body, "3").retry_after == 3
    assert refusal(429, body).causes == ("DisruptionBudget",)
    assert refusal(429, {}).retry_after is None
    assert "later" in str(refusal(429, body))


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        pytest.param((Kind.POD, "team", "p"), "/api/v1/namespaces/team/pods/p", id="core"),
        pytest.param((Kind.POD,), "/api/v1/pods", id="all namespaces"),
        pytest.param((Kind.NODE, "ignored", "n"), "/api/v1/nodes/n", id="cluster-scoped kinds have no namespace"),
        pytest.param(
            (Kind.DEVICE_CLAIM, "team", "c", "status"),
            "/apis/adjoin.dev/v1alpha1/namespaces/team/deviceclaims/c/status",
            id="subresource",
        ),
        pytest.param((Kind.NODE, "", "../x"), "/api/v1/nodes/..%2Fx", id="names never leave their place"),
    ],
)
def test_paths(arguments: tuple[Any, ...], path: str) -> None:
    assert path_of(*arguments) == path


@pytest.mark.parametrize(("text", "number"), [("12", 12), ("", 0), (None, 0), ("abc", 0)])
def test_versions_are_numbers(text: str | None, number: int) -> None:
    assert version_of({"metadata": {"resourceVersion": text}}) == number


@virtual
async def test_objects_come_and_go() -> None:
    async with FakeApi() as api, api.client() as kube:
        made = await kube.create(Kind.DEVICE_CLAIM, "team", CLAIM)
        assert await kube.get(Kind.DEVICE_CLAIM, "team", "job") == made
        patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "status": {"phase": "Ready"}}
        patched = await kube.patch(Kind.DEVICE_CLAIM, "team", "job", patch, sub="status")
        assert patched["status"] == {"phase": "Ready"}
        with pytest.raises(Conflict):
            await kube.patch(Kind.DEVICE_CLAIM, "team", "job", patch, sub="status")
        with pytest.raises(AlreadyExists):
            await kube.create(Kind.DEVICE_CLAIM, "team", CLAIM)
        await kube.delete(Kind.DEVICE_CLAIM, "team", "job", {"preconditions": {"uid": made["metadata"]["uid"]}})
        with pytest.raises(NotFound):
            await kube.get(Kind.DEVICE_CLAIM, "team", "job")


@virtual
async def test_looking_for_an_object_also_dates_its_absence() -> None:
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.POD, {"metadata": {"namespace": "team", "name": "p"}})
        found, _ = await kube.find(Kind.POD, "team", "p")
        assert found is not None
        api.remove(Kind.POD, "team", "p")
        assert await kube.find(Kind.POD, "team", "p") == (None, api.version)
        assert not api.calls("GET", "/pods/p"), "pods are looked at with the right to list alone"


@virtual
async def test_a_list_comes_in_parts() -> None:
    async with FakeApi() as api, api.client() as kube:
        for number in range(5):
            api.put(Kind.NODE, {"metadata": {"name": f"n{number}"}})
        pages = [page async for page in kube.pages(Kind.NODE, limit=2)]
        assert [[node["metadata"]["name"] for node in page.items] for page in pages] == [
            ["n0", "n1"],
            ["n2", "n3"],
            ["n4"],
        ]
        assert {page.version for page in pages} == {str(api.version)}


@virtual
async def test_a_list_that_took_too_long_is_gone() -> None:
    async with FakeApi() as api, api.client() as kube:
        for number in range(3):
            api.put(Kind.NODE, {"metadata": {"name": f"n{number}"}})
        pages = kube.pages(Kind.NODE, limit=2)
        await anext(pages)
        api.compact()
        with pytest.raises(Gone):
            await anext(pages)


@virtual
async def test_metadata_alone_is_asked_for_as_such() -> None:
    async with FakeApi() as api, api.client() as kube:
        async for _ in kube.pages(Kind.POD, labels="adjoin.dev/claim", metadata_only=True):
            pass
        assert api.requests[0].query["labelSelector"] == "adjoin.dev/claim"


@virtual
async def test_a_watch_tells_changes_and_ends_with_the_server() -> None:
    async with FakeApi() as api, api.client() as kube:
        seen: list[tuple[str, str]] = []

        async def follow() -> None:
            async for event in kube.watch(Kind.NODE, str(api.version)):
                seen.append((event.type, event.object["metadata"].get("name", "")))

        async with Background(follow()) as background:
            await settled()
            api.put(Kind.NODE, {"metadata": {"name": "n"}})
            api.put(Kind.NODE, {"metadata": {"name": "n", "labels": {"a": "b"}}})
            api.bookmark(Kind.NODE)
            api.remove(Kind.NODE, "", "n")
            await settled()
            api.end_watches()
            await background.tasks[0]
        assert seen == [("ADDED", "n"), ("MODIFIED", "n"), ("BOOKMARK", ""), ("DELETED", "n")]


@virtual
async def test_objects_longer_than_a_buffer_arrive_whole() -> None:
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.CONFIG_MAP, {"metadata": {"namespace": "a", "name": "big"}, "data": {"text": "x" * 900_000}})
        async for event in kube.watch(Kind.CONFIG_MAP, "1"):
            assert len(event.object["data"]["text"]) == 900_000
            break


@virtual
async def test_a_version_that_is_too_old_is_gone() -> None:
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.NODE, {"metadata": {"name": "n"}})
        api.compact()
        with pytest.raises(Gone):
            async for _ in kube.watch(Kind.NODE, "1"):
                pass


@virtual
async def test_a_silent_watch_is_dead() -> None:
    async with FakeApi() as api, api.client() as kube:
        started = loop_time()
        with pytest.raises(TimedOut):
            async for _ in kube.watch(Kind.NODE, str(api.version), server_seconds=3600):
                pass
        assert SILENCE_SECONDS <= loop_time() - started < SILENCE_SECONDS + 5


@virtual
async def test_a_hanging_request_ends_with_its_outcome_unknown() -> None:
    async with FakeApi() as api, api.client() as kube:
        api.hang(method="POST")
        started = loop_time()
        with pytest.raises(TimedOut):
            await kube.create(Kind.DEVICE_CLAIM, "team", CLAIM)
        assert loop_time() - started < WRITE_SECONDS + 1


@virtual
async def test_a_connection_that_breaks_leaves_the_outcome_unknown() -> None:
    async with FakeApi() as api, api.client() as kube:
        api.drop(method="POST", afterwards=True)
        with pytest.raises(Disconnected):
            await kube.create(Kind.DEVICE_CLAIM, "team", CLAIM)
        assert api.get(Kind.DEVICE_CLAIM, "team", "job")


@virtual
async def test_a_server_that_is_not_there_has_seen_nothing() -> None:
    async with FakeApi() as api, api.client() as kube:
        await api.stop()
        with pytest.raises(Unreachable) as caught:
            await kube.create(Kind.DEVICE_CLAIM, "team", CLAIM)
        assert not isinstance(caught.value, OutcomeUnknown)


@virtual
async def test_an_expired_token_is_read_anew_once() -> None:
    tokens = iter(["Bearer old", "Bearer new", "Bearer never"])
    async with FakeApi() as api:
        api.tokens = {"Bearer new"}
        async with api.client(lambda: next(tokens)) as kube:
            await kube.create(Kind.DEVICE_CLAIM, "team", CLAIM)
            await kube.get(Kind.DEVICE_CLAIM, "team", "job")
        assert [one.token for one in api.requests] == ["Bearer old", "Bearer new", "Bearer new"]


@virtual
async def test_a_token_that_stays_refused_is_an_error() -> None:
    async with FakeApi() as api:
        api.tokens = set()
        async with api.client() as kube:
            with pytest.raises(Unauthorized):
                await kube.get(Kind.DEVICE_CLAIM, "team", "job")
        assert len(api.requests) == 2


@virtual
async def test_an_answer_that_is_no_object_is_no_answer() -> None:
    async with FakeApi() as api, api.client() as kube:
        api.put(Kind.NODE, {"metadata": {"name": "n"}})
        api.objects[Kind.NODE]["", "n"] = []  # type: ignore[assignment]
        with pytest.raises(KubeError):
            await kube.get(Kind.NODE, "", "n")


async def test_a_kubeconfig_tells_where_and_who(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443/", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"tokenFile": str(tmp_path / "token")}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    login = Login(str(path))
    access = await login.access()
    assert access.server == "https://127.0.0.1:6443"
    assert access.authorization == "Bearer secret"
    assert not access.verify
    assert access.tls() is not None
    (tmp_path / "token").write_text("rotated")
    assert (await login.access()).authorization == "Bearer rotated"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="no such file"),
        pytest.param("current-context: nowhere", id="a context that is not there"),
        pytest.param("", id="empty"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_says_so(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match="no access to a cluster by"):
        await Login(str(path)).access()


async def test_outside_of_a_pod_a_kubeconfig_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match="ServiceAccount"):
        await Login().access()


async def test_a_client_must_be_entered() -> None:
    with pytest.raises(RuntimeError, match="entered"):
        await Kube(Login()).get(Kind.NODE, "", "n")
