"""A cluster for commands that read one: the API server on loopback in a thread of its own, and a kubeconfig for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.support.fakeapi import FakeApi, Obj

from adjoin.intents import Kind

BY_KIND = {kind.value.kind: kind for kind in Kind}


@contextmanager
def cluster(objects: Iterable[Obj], folder: Path, **options: set[Kind]) -> Iterator[tuple[FakeApi, str]]:
    """The server with these objects, and the path of a kubeconfig whose context stands in namespace `team`."""
    api = FakeApi(**options)
    for obj in objects:
        api.put(BY_KIND[obj["kind"]], obj)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(api.start(), loop).result()
    try:
        yield api, str(kubeconfig(folder / "kubeconfig", api.url))
    finally:
        asyncio.run_coroutine_threadsafe(api.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def kubeconfig(path: Path, url: str) -> Path:
    """Writes a kubeconfig for the server at `url`; its second context stands in namespace `other`."""
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u", "namespace": namespace}}
        for name, namespace in (("here", "team"), ("there", "other"))
    ]
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": contexts,
    }
    path.write_text(yaml.safe_dump(body))
    return path
