"""`release-quarantine`: somebody vouches for a device, and the operator gives it out again.

In come a device, a reason and a cluster; out goes an annotation on the pool that has the device in quarantine. Nothing
else is written: the operator acts on the annotation, says so in an Event and takes it off.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from adjoin.api.names import ANNOTATION_RELEASE
from adjoin.api.releases import Release, read_releases, releases_text
from adjoin.cli.exits import FAILED, OK
from adjoin.cli.source import NoAnswer, complain
from adjoin.decision.quarantine import names_device
from adjoin.facts import MALFORMED, PoolFacts, read_pool
from adjoin.intents import Kind
from adjoin.inventory import Locked, read_locked
from adjoin.kube import ConfigurationError, Conflict, Kube, KubeError, NotFound

ATTEMPTS: Final = 5
"""So often the annotation is written again when somebody else changed the pool meanwhile."""
NAMED: Final = 20
"""How many devices in quarantine are named to who asked for another."""


@dataclass(frozen=True, slots=True)
class Vouched:
    """The device that was meant, in whose quarantine it is."""

    pool: PoolFacts
    locked: Locked


def release_command(device: str, reason: str, kubeconfig: str | None, context: str | None) -> int:
    """The command. Returns its exit status."""
    from adjoin.cli.live import LiveError, find_target

    try:
        if not reason.strip():
            raise NoAnswer("--reason is empty: say why the device is sound, for who looks at it next")
        target = find_target(kubeconfig, context, "", os.environ)

        async def release() -> Vouched:
            async with Kube(target.login, agent="adjoin-cli") as kube:
                return await ask(kube, device, reason.strip())

        found = asyncio.run(release())
    except NoAnswer as error:
        return complain(error)
    except (LiveError, ConfigurationError) as error:
        return complain(NoAnswer(str(error), FAILED))
    except KubeError as error:
        return complain(NoAnswer(f"DevicePools cannot be read or annotated: {error}", FAILED))
    locked = found.locked
    print(
        f"DevicePool {found.pool.meta.name}: asked to release {spelled(locked)}, in quarantine because of "
        f"{locked.reason}; Adjoin tells in an Event on the pool what came of it"
    )
    return OK


async def ask(kube: Kube, device: str, reason: str) -> Vouched:
    """Writes the annotation. Raises `NoAnswer` for a device that is not in quarantine, and any `KubeError`."""
    for _ in range(ATTEMPTS):
        found = find(await _pools(kube), device)
        try:
            await kube.patch(Kind.DEVICE_POOL, "", found.pool.meta.name, patch(found, reason))
        except (Conflict, NotFound):
            continue
        return found
    raise NoAnswer("the pool changes faster than it can be annotated; try again", FAILED)


async def _pools(kube: Kube) -> list[PoolFacts]:
    pools = []
    async for page in kube.pages(Kind.DEVICE_POOL):
        for obj in page.items:
            try:
                pools.append(read_pool(obj))
            except MALFORMED as error:
                raise NoAnswer(f"DevicePool {obj['metadata']['name']} cannot be read: {error}", FAILED) from None
    return pools


def find(pools: Sequence[PoolFacts], device: str) -> Vouched:
    """The device that `device` names: by hardware id, `driver/pool/device`, `pool/device` or, where only one is called
    so, its name alone. Raises `NoAnswer` with what is in quarantine."""
    every = [Vouched(pool, locked) for pool in pools for locked in read_locked(pool.status)]
    meant = [each for each in every if names_device(device, each.locked)]
    meant = meant or [each for each in every if each.locked.device.device == device]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise NoAnswer(f"{device} means several devices: {_listed(meant)}; say which")
    if not every:
        raise NoAnswer(f"{device} is not in quarantine, and neither is any other device")
    raise NoAnswer(f"{device} is not in quarantine; these are: {_listed(every)}")


def spelled(locked: Locked) -> str:
    """`gpu.nvidia.com/node-a/gpu-0`."""
    return "/".join(locked.device)


def _listed(group: Sequence[Vouched]) -> str:
    names = [f"{spelled(each.locked)} ({each.locked.reason})" for each in group]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def patch(found: Vouched, reason: str) -> dict[str, Any]:
    """The merge patch that asks for the release, beside what others asked for and the operator has not answered."""
    pool = found.pool
    try:
        listed = read_releases(pool.annotations.get(ANNOTATION_RELEASE) or "[]")
    except ValueError:
        # Nobody could act on it: the operator refuses it anyway.
        listed = ()
    text = releases_text((*listed, Release(spelled(found.locked), reason)))
    meta = {"uid": pool.meta.uid, "resourceVersion": str(pool.meta.version)}
    return {"metadata": {**meta, "annotations": {ANNOTATION_RELEASE: text}}}
