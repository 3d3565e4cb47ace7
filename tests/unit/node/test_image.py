"""The image of the node's containers: an OCI layout in which every digest is right."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from tests.node.image import PAUSE, WORKLOAD, oci_archive


def unpacked(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}  # type: ignore[union-attr]


def test_the_archive_leads_from_names_to_the_program(tmp_path: Path) -> None:
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"\x7fELF program")
    files = unpacked(oci_archive(busybox, "x86_64"))

    def blob(descriptor: dict[str, object]) -> bytes:
        algorithm, digest = str(descriptor["digest"]).split(":")
        data = files[f"blobs/{algorithm}/{digest}"]
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (digest, descriptor["size"])
        return data

    index = json.loads(files["index.json"])
    names = [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]]
    assert sorted(names) == sorted([PAUSE, WORKLOAD])
    manifest = json.loads(blob(index["manifests"][0]))
    config = json.loads(blob(manifest["config"]))
    (layer,) = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    assert config["architecture"] == "amd64"
    with tarfile.open(fileobj=io.BytesIO(blob(layer))) as tar:
        program = tar.extractfile("bin/busybox")
        assert program is not None
        assert program.read() == busybox.read_bytes()
        assert tar.getmember("bin/busybox").mode == 0o755
        assert tar.getmember("bin/sh").linkname == "busybox"


def test_the_same_busybox_gives_the_same_image(tmp_path: Path) -> None:
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"program")
    assert oci_archive(busybox, "x86_64") == oci_archive(busybox, "x86_64")
