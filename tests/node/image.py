"""The one container image of the node: a static busybox, packed as an OCI image layout in a tar file.

Comes in: the busybox. Goes out: bytes that `ctr images import` takes. The same image bears several names: it is the
pause container too.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

# `registry.test/workload:1` is what the pods of all cluster tests name.
WORKLOAD = "registry.test/workload:1"
PAUSE = "registry.test/pause:1"
APPLETS = ("cat", "echo", "env", "false", "sed", "sh", "sleep", "sort", "test", "tr", "true")
# Sleeps until it is told to end, and then ends at once.
COMMAND = ("/bin/sh", "-c", 'trap "exit 0" TERM INT; while :; do sleep 3600 & wait; done')
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def oci_archive(busybox: Path, machine: str) -> bytes:
    """The archive for a machine as `platform.machine()` calls it."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    layer = blob(_layer(busybox), "layer.v1.tar")
    settings = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": list(COMMAND)},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    config = blob(json.dumps(settings).encode(), "config.v1+json")
    manifest = blob(
        json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config,
                "layers": [layer],
            }
        ).encode(),
        "manifest.v1+json",
    )
    names = [{**manifest, "annotations": {"io.containerd.image.name": name}} for name in (WORKLOAD, PAUSE)]
    files = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": names}).encode(),
        **blobs,
    }
    return _tar([(_entry(name, 0o644, len(data)), data) for name, data in files.items()])


def _layer(busybox: Path) -> bytes:
    program = busybox.read_bytes()
    entries = [(_entry(name, 0o1777 if name == "tmp" else 0o755, kind=tarfile.DIRTYPE), b"") for name in
               ("bin", "dev", "etc", "proc", "sys", "tmp")]  # fmt: skip
    entries.append((_entry("bin/busybox", 0o755, len(program)), program))
    for applet in APPLETS:
        link = _entry(f"bin/{applet}", 0o777, kind=tarfile.SYMTYPE)
        link.linkname = "busybox"
        entries.append((link, b""))
    return _tar(entries)


def _entry(name: str, mode: int, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size, entry.type = mode, size, kind
    return entry


def _tar(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for entry, data in entries:
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()
