"""How long admission of pods takes while decisions are made: `python -m tests.benchmarks.admission` prints a table.

A process of its own serves the endpoint over loopback with claims and pools in its memory, and decides on a cluster of
many nodes over and over in a worker thread, as the operator does; pods come at a steady rate, whatever answers take.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import aiohttp
import orjson
from aiohttp import web
from rich.console import Console
from tests.support.objects import deviceclaim, devicepool, node, resourceslice, taintrule
from tests.support.world import World

from adjoin.admission import build_app
from adjoin.app import configure_interpreter
from adjoin.cache import Cache
from adjoin.decision import Decider
from adjoin.facts import ClaimFacts
from adjoin.intents import Kind

CLAIMS, NODES = 1000, 200


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of answers at a rate, and how many decisions were made meanwhile."""

    pods_per_second: int
    median: float
    p99: float
    worst: float
    decisions: int


async def serve() -> None:
    """Serves on a free port, whose number it prints, until its standard input ends."""
    world, cache = World(), Cache("adjoin-system")
    world.add(devicepool(), taintrule())
    for number in range(NODES):
        world.add(node(f"n{number}"), resourceslice(f"n{number}", devices=8))
    for number in range(CLAIMS):
        world.add(deviceclaim(f"c{number}", requests={"gpu": 9}))
    for (kind, _, _), obj in world.objects.items():
        cache.ingest(kind, obj)
    views = [world.view()]
    for number in range(CLAIMS):
        world.change(Kind.DEVICE_CLAIM, f"c{number}", {"spec": {"priority": 1}})
    views.append(world.view())
    ended, made = threading.Event(), 0

    def decide() -> None:
        nonlocal made
        decider = Decider()
        while not ended.is_set():
            # Every claim differs from what it was, so each is looked at anew.
            decider.decide(views[made % 2], world.now)
            made += 1

    async def find(namespace: str, name: str) -> ClaimFacts | None:
        raise AssertionError(f"{namespace}/{name} was asked for")

    async def may(user: object) -> bool:
        raise AssertionError(f"{user} was asked about")

    runner = web.AppRunner(build_app(cache, find, may), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configure_interpreter()
    gc.collect()
    gc.freeze()
    worker = threading.Thread(target=decide)
    worker.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    ended.set()
    worker.join()
    print(made, flush=True)
    await runner.cleanup()


def _review(number: int) -> bytes:
    pod = {
        "kind": "Pod",
        "metadata": {"generateName": "train-", "labels": {"adjoin.dev/claim": f"c{number % CLAIMS}"}},
        "spec": {"containers": [{"name": name, "image": "busybox"} for name in ("main", "sidecar")]},
    }
    request = {"uid": str(number), "kind": {"kind": "Pod"}, "operation": "CREATE", "namespace": "team", "object": pod}
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


async def _ask(port: int, pods_per_second: int, seconds: float) -> list[float]:
    taken: list[float] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(number: int) -> None:
            started = time.perf_counter()
            async with session.post(f"http://127.0.0.1:{port}/mutate-pod", data=_review(number)) as answer:
                body = orjson.loads(await answer.read())
            taken.append(time.perf_counter() - started)
            assert body["response"]["allowed"], body

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(int(pods_per_second * seconds)):
                await asyncio.sleep(max(0.0, began + number / pods_per_second - time.perf_counter()))
                group.create_task(one(number))
    return sorted(taken)


def measure(pods_per_second: int = 200, seconds: float = 20.0) -> Latency:
    """Asks a server of its own at a steady rate."""
    command = [sys.executable, "-m", "tests.benchmarks.admission", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        port = int(server.stdout.readline())
        taken = asyncio.run(_ask(port, pods_per_second, seconds))
        server.stdin.close()
        decisions = int(server.stdout.readline())
    return Latency(pods_per_second, taken[len(taken) // 2], taken[int(len(taken) * 0.99)], taken[-1], decisions)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        found = measure()
        Console().print(
            f"{found.pods_per_second} pods/s: median {found.median * 1e3:.1f} ms, "
            f"99 % within {found.p99 * 1e3:.1f} ms, worst {found.worst * 1e3:.1f} ms, "
            f"beside {found.decisions} decisions"
        )
