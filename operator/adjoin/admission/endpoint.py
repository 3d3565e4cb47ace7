"""The HTTP side of admission: three paths, and 404 for every other, so that a wrong configuration refuses instead of
letting pass.

In come AdmissionReviews of admission.k8s.io/v1, out go their answers. A request that is no such review is answered with
400.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import orjson
from aiohttp import web

from adjoin.admission.pods import Patch, Refused, mutate_ephemeral, mutate_pod
from adjoin.admission.variables import Environment
from adjoin.api import names
from adjoin.api.claim import DeviceClaimSpec, ScalingMode
from adjoin.api.common import DeviceType
from adjoin.api.defaults import DEFAULT_REPLICAS
from adjoin.api.errors import shown
from adjoin.api.hook_checks import escalations
from adjoin.api.pool_policy import DeliveryMode
from adjoin.api.validate import validate
from adjoin.asked import read_share_spec, read_spec
from adjoin.cache import Facts
from adjoin.delivery import parts
from adjoin.environment import NamespaceFacts, ShareFacts
from adjoin.facts import ClaimFacts, PoolFacts
from adjoin.intents import Kind
from adjoin.inventory import asked_pool
from adjoin.inventory.pools import default_pools
from adjoin.inventory.tenancy import prepare_tenancy
from adjoin_allocator.alternatives import taking
from adjoin_allocator.shortage import share_flaw

MUTATE_POD, MUTATE_ADJOIN, VALIDATE_ADJOIN = "/mutate-pod", "/mutate-adjoin", "/validate-adjoin"
ASK_SECONDS = 1.0
"""How long a claim that memory does not have may take to be asked for; the API server gives us 3 s in all."""
_LARGEST_REVIEW = 16 * 2**20
_REMEMBERED = 20_000
_KINDS = frozenset(names.Kind)
_T = TypeVar("_T")

May = Callable[[Mapping[str, Any]], Awaitable[bool]]
"""Asks the API server whether a user (`userInfo` of a review) may create Jobs in the operator's namespace. Raises when
it cannot be told."""

FindClaim = Callable[[str, str], Awaitable[ClaimFacts | None]]
"""Asks the API server for the DeviceClaim of a namespace and name; None when there is none."""
FindPool = Callable[[str], Awaitable[PoolFacts | None]]
"""Asks the API server for the DevicePool of a name; None when there is none."""


class Memory(Protocol):
    """What admission reads: the cache."""

    @property
    def synced(self) -> bool: ...
    def known(self, kind: Kind, uid: str) -> Facts | None: ...
    def named(self, kind: Kind, namespace: str, name: str) -> Facts | None: ...
    def versions(self, kind: Kind) -> Mapping[str, int]: ...


class _BadReview(Exception):
    """The request is no AdmissionReview that belongs here."""


def _review(body: bytes) -> Mapping[str, Any]:
    """The review's request. Raises `_BadReview`."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _BadReview(f"not JSON: {error}") from None
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict) or review.get("apiVersion") != "admission.k8s.io/v1":
        raise _BadReview("not an AdmissionReview of admission.k8s.io/v1 with a request")
    if not isinstance(request.get("uid"), str) or not isinstance(request.get("object"), dict):
        raise _BadReview("the request has no uid or no object")
    return request


def _answer(
    request: Mapping[str, Any],
    *,
    errors: tuple[str, ...] = (),
    patch: Patch | None = None,
    warnings: list[str] | None = None,
) -> web.Response:
    response: dict[str, Any] = {"uid": request["uid"], "allowed": not errors}
    if errors:
        response["status"] = {"code": 422, "reason": "Invalid", "message": "; ".join(errors)}
    elif patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(patch)).decode()
    if warnings:
        response["warnings"] = warnings
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return web.Response(body=orjson.dumps(review), content_type="application/json")


def _unscaled(spec: Any) -> bool:
    """Whether a claim of fixed size does not say of what size. The API server refuses to read the scale of such an
    object, so no autoscaler could begin."""
    if not isinstance(spec, Mapping) or spec.get("replicas") is not None:
        return False
    scaling = spec.get("scaling")
    mode = scaling.get("mode") if isinstance(scaling, Mapping) else None
    return mode in (None, ScalingMode.FIXED)


class Endpoint:
    """Answers reviews from memory."""

    def __init__(self, memory: Memory, find_claim: FindClaim, may: May, find_pool: FindPool | None = None) -> None:
        self._memory = memory
        self._find = find_claim
        self._find_pool = find_pool
        self._may = may
        self._uids: dict[tuple[str, str], str] = {}
        self._asking: dict[tuple[str, str], asyncio.Task[ClaimFacts | None]] = {}
        self._asking_pool: dict[str, asyncio.Task[PoolFacts | None]] = {}

    async def mutate_pod(self, http: web.Request) -> web.Response:
        """Gate, token and ResourceClaims or environment for a pod with our label; no devices for its ephemeral
        containers."""
        request = _review(await http.read())
        pod = request["object"]
        label = ((pod.get("metadata") or {}).get("labels") or {}).get(names.LABEL_CLAIM)
        if (request.get("kind") or {}).get("kind") != "Pod":
            raise _BadReview("the object is no Pod")
        if label is not None and request.get("subResource") == "ephemeralcontainers":
            patch, warnings = mutate_ephemeral(pod, request.get("oldObject") or {})
            return _answer(request, patch=patch, warnings=warnings)
        if label is None or request.get("operation") != "CREATE":
            return _answer(request)
        claim = await self.claim(str(request.get("namespace") or ""), str(label))
        pool = await self._pool(claim) if claim is not None else None
        layout = parts(claim.claim if claim is not None else None, pool.pool if pool is not None else None)
        requests = None if claim is None else [each.name for each in claim.claim.spec.requests]
        try:
            patch, warnings = mutate_pod(pod, layout, requests, self._environment(pool, claim))
        except Refused as refused:
            return _answer(request, errors=refused.errors)
        if claim is None:
            warnings.append(f"there is no DeviceClaim {label} in this namespace yet; the pod waits until there is")
        return _answer(request, patch=patch, warnings=warnings)

    async def mutate_adjoin(self, http: web.Request) -> web.Response:
        """The finalizer for a new object of our kinds, and the replicas of a claim that says nothing of them."""
        request = _review(await http.read())
        obj = self._own(request)
        finalizers = (obj.get("metadata") or {}).get("finalizers") or []
        if request.get("operation") != "CREATE":
            return _answer(request)
        patch: list[dict[str, Any]] = []
        if names.FINALIZER not in finalizers:
            value = [*finalizers, names.FINALIZER]
            patch.append({"op": "add", "path": "/metadata/finalizers", "value": value})
        if obj.get("kind") == names.Kind.DEVICE_CLAIM and _unscaled(obj.get("spec")):
            patch.append({"op": "add", "path": "/spec/replicas", "value": DEFAULT_REPLICAS})
        return _answer(request, patch=patch) if patch else _answer(request)

    async def validate_adjoin(self, http: web.Request) -> web.Response:
        """Refuses what Adjoin could not act on, with every error at once."""
        request = _review(await http.read())
        obj = self._own(request)
        old = request.get("oldObject") if request.get("operation") == "UPDATE" else None
        errors = tuple(str(error) for error in validate(obj, old))
        if not errors and obj.get("kind") == names.Kind.DEVICE_POOL:
            errors = await self._escalates(obj, old, request.get("userInfo") or {})
        if not errors and obj.get("kind") == names.Kind.DEVICE_CLAIM:
            errors = (*self._against_pool(obj, old), *(self._against_shares(obj) if old is None else ()))
        return _answer(request, errors=errors, warnings=[] if errors else self._warnings(obj))

    async def _escalates(
        self, obj: Mapping[str, Any], old: Mapping[str, Any] | None, user: Mapping[str, Any]
    ) -> tuple[str, ...]:
        """Hooks run with Adjoin's hands: whoever lets them have more than a restricted pod must be one who could make
        such a Job there without Adjoin."""
        before = {(path, orjson.dumps(value)) for path, value in _asked(old)} if old is not None else set()
        new = [path for path, value in _asked(obj) if (path, orjson.dumps(value)) not in before]
        if not new:
            return ()
        try:
            async with asyncio.timeout(ASK_SECONDS):
                allowed = await self._may(user)
        except Exception as error:
            return (f"{new[0]}: whether {user.get('username')} may ask for this could not be told: {error}; try again",)
        if allowed:
            return ()
        who = user.get("username") or "the user"
        remedy = (
            f"only one who may create Jobs in the operator's namespace may ask for this, and {who} may not; remove it"
        )
        return tuple(f"{path}: {remedy}" for path in new)

    def _against_pool(self, obj: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[str]:
        """What the claim's pool does not allow, as far as it is known; planning looks again."""
        spec, meta = obj.get("spec") or {}, obj.get("metadata") or {}
        named = (spec.get("poolRef") or {}).get("name")
        if not self._memory.synced:
            return []
        name = named or next(iter(default_pools(self._pools().values())), "")
        pool = self._memory.named(Kind.DEVICE_POOL, "", name) if name else None
        if not isinstance(pool, PoolFacts):
            return []
        errors = []
        chosen = (spec.get("lifecycle") or {}).get("parameters") or {}
        declared = {each.name: each.values for each in pool.pool.spec.lifecycle.parameters}
        before = (((old or {}).get("spec") or {}).get("lifecycle") or {}).get("parameters") or {}
        for key, value in chosen.items():
            field = f"spec.lifecycle.parameters[{key}]"
            if before.get(key) == value:
                continue  # it stood there before the pool said otherwise
            if key not in declared:
                has = ", ".join(declared) or "no parameters"
                errors.append(f"{field}: {shown(value)}: pool {name} declares {has}")
            elif value not in declared[key]:
                errors.append(f"{field}: {shown(value)}: pool {name} declares {', '.join(declared[key])}")
        namespace = self._memory.named(Kind.NAMESPACE, "", str(meta.get("namespace") or ""))
        if old is None and isinstance(namespace, NamespaceFacts):
            rules = prepare_tenancy(pool.pool.spec.tenancy)
            if not rules.allows(namespace.labels):
                where = f"namespace {namespace.meta.name} may not claim from it: its labels do not match"
                at = f"spec.poolRef.name: {shown(name)}" if named else f"spec.poolRef: the default pool is {name}"
                errors.append(f"{at}: {where} tenancy.namespaceSelector of the pool")
        return errors

    def _against_shares(self, obj: Mapping[str, Any]) -> Iterator[str]:
        """What of a new claim its shares cannot be asked, as far as they are known; planning looks again."""
        if not self._memory.synced:
            return
        for at, request in enumerate(read_spec(DeviceClaimSpec.model_validate(obj.get("spec") or {})).requests):
            path = f"spec.requests[{at}]"
            ways = [(f"{path}.firstOf[{i}]", taking(request, one)) for i, one in enumerate(request.first_of)]
            for field, way in ways or [(path, request)]:
                share = None if way.share is None else self._memory.named(Kind.DEVICE_SHARE, "", way.share.name)
                why = share_flaw(way, read_share_spec(share)) if isinstance(share, ShareFacts) else None
                if why is not None:
                    yield f"{field}.share: {why}"

    async def healthz(self, _: web.Request) -> web.Response:
        """It answers."""
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        """It knows the cluster."""
        return web.Response(text="ok\n") if self._memory.synced else web.Response(status=503, text="not synced yet\n")

    @staticmethod
    def _own(request: Mapping[str, Any]) -> Mapping[str, Any]:
        obj: Mapping[str, Any] = request["object"]
        if obj.get("kind") not in _KINDS:
            raise _BadReview(f"the object is none of {', '.join(sorted(_KINDS))}")
        return obj

    async def claim(self, namespace: str, name: str) -> ClaimFacts | None:
        """The claim of that name as memory has it; one that it does not have is asked for."""
        key = (namespace, name)
        found = self._memory.known(Kind.DEVICE_CLAIM, self._uids.get(key, ""))
        if found is None or (found.meta.namespace, found.meta.name) != key:
            found = self._memory.named(Kind.DEVICE_CLAIM, namespace, name)
        if found is None:
            return await self._ask(key)
        while len(self._uids) >= _REMEMBERED:
            del self._uids[next(iter(self._uids))]
        self._uids[key] = found.meta.uid
        return found if isinstance(found, ClaimFacts) else None

    async def _ask(self, key: tuple[str, str]) -> ClaimFacts | None:
        """Asks for a claim; pods that name it meanwhile wait for the same answer. None where none comes in time."""
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(_in_time(self._find(*key)))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        # One that goes away must not take the answer from the others.
        return await asyncio.shield(asking)

    async def _ask_pool(self, name: str) -> PoolFacts | None:
        """Asks for a pool that was applied a moment ago: what it says of delivery decides what the pod is made of."""
        if self._find_pool is None:
            return None
        asking = self._asking_pool.get(name)
        if asking is None:
            asking = self._asking_pool[name] = asyncio.create_task(_in_time(self._find_pool(name)))
            asking.add_done_callback(lambda _: self._asking_pool.pop(name, None))
        return await asyncio.shield(asking)

    def _pools(self) -> dict[str, PoolFacts]:
        known = (self._memory.known(Kind.DEVICE_POOL, uid) for uid in self._memory.versions(Kind.DEVICE_POOL))
        return {each.meta.name: each for each in known if isinstance(each, PoolFacts)}

    def _environment(self, pool: PoolFacts | None, claim: ClaimFacts | None) -> Environment | None:
        """How devices are handed over, if as environment. Of a claim or a pool that is not known yet, as all pools do,
        if they agree; a claim that is not known may have parts."""
        pools = [pool] if pool is not None else list(self._pools().values())
        if not pools or any(each.pool.spec.delivery.mode is not DeliveryMode.ENVIRONMENT for each in pools):
            return None
        counted = (
            device.source.node_resource.name
            for each in pools
            for device in each.pool.spec.devices
            if device.source.node_resource is not None and device.type is DeviceType.GPU
        )
        asked = claim.claim.spec.requests if claim is not None else ()
        shares = [way.share for request in asked for way in request.first_of or ()] + [each.share for each in asked]
        return Environment(frozenset(counted), claim is None or any(share is not None for share in shares))

    async def _pool(self, claim: ClaimFacts) -> PoolFacts | None:
        named = claim.claim.spec.pool_ref
        if named is not None:
            found = self._memory.named(Kind.DEVICE_POOL, "", named.name)
            return found if isinstance(found, PoolFacts) else await self._ask_pool(named.name)
        pools = self._pools()
        default = next(iter(default_pools(pools.values())), "")
        return pools.get(asked_pool(claim, default))

    def _warnings(self, obj: Mapping[str, Any]) -> list[str]:
        """What is accepted but may surprise."""
        spec = obj.get("spec") or {}
        if obj.get("kind") == names.Kind.DEVICE_POOL:
            mode = (spec.get("delivery") or {}).get("mode") or "ResourceClaim"
            return [
                f"spec.devices[{place}].source.{source}: no DRA driver hands these devices out, so with delivery.mode "
                "ResourceClaim claims of them are placed, and pods that name such a claim wait"
                for place, device in enumerate(spec.get("devices") or ())
                for source in ("static", "nodeResource")
                if mode == "ResourceClaim" and (device.get("source") or {}).get(source) is not None
            ]
        pool = (spec.get("poolRef") or {}).get("name")
        if obj.get("kind") != names.Kind.DEVICE_CLAIM or not pool or not self._memory.synced:
            return []
        if self._memory.named(Kind.DEVICE_POOL, "", pool) is not None:
            return []
        return [f"spec.poolRef.name: there is no DevicePool {pool} yet; the claim is Pending until there is"]


def _asked(pool: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Everything by which a pool's hooks have more than a restricted pod."""
    lifecycle = (pool.get("spec") or {}).get("lifecycle") or {}
    for stage in ("init", "cleanup"):
        for place, hook in enumerate(lifecycle.get(stage) or ()):
            yield from escalations(f"spec.lifecycle.{stage}[{place}].template", hook.get("template") or {})


async def _in_time(answer: Awaitable[_T | None]) -> _T | None:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await answer
    except TimeoutError:
        return None


@web.middleware
async def _bad_reviews(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except _BadReview as error:
        return web.Response(status=400, text=f"{error}\n")


def build_app(memory: Memory, find_claim: FindClaim, may: May, find_pool: FindPool | None = None) -> web.Application:
    """The application: three paths for reviews, two for probes, 404 elsewhere. Without `find_pool` nothing but memory
    knows of pools."""
    endpoint = Endpoint(memory, find_claim, may, find_pool)
    app = web.Application(middlewares=[_bad_reviews], client_max_size=_LARGEST_REVIEW)
    app.add_routes(
        [
            web.post(MUTATE_POD, endpoint.mutate_pod),
            web.post(MUTATE_ADJOIN, endpoint.mutate_adjoin),
            web.post(VALIDATE_ADJOIN, endpoint.validate_adjoin),
            web.get("/healthz", endpoint.healthz),
            web.get("/readyz", endpoint.readyz),
        ]
    )
    return app
