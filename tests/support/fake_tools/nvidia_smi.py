"""Answers as nvidia-smi does, of the GPUs in the JSON file named by FAKE_MACHINE; changes them as `mig` would."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

STATE = Path(os.environ["FAKE_MACHINE"])
state: dict[str, Any] = json.loads(STATE.read_text())


def element(path: str, value: str) -> str:
    """Nested elements of a path."""
    names = path.split("/")
    return "".join(f"<{n}>" for n in names) + escape(value) + "".join(f"</{n}>" for n in reversed(names))


def processes(gpu: dict[str, Any]) -> str:
    """What runs on it."""
    return "".join(
        "<process_info>"
        + element("gpu_instance_id", p.get("gi", "N/A"))
        + element("compute_instance_id", p.get("ci", "N/A"))
        + element("pid", str(p["pid"]))
        + element("process_name", p.get("name", ""))
        + "</process_info>"
        for p in gpu.get("processes", [])
    )


def parts(gpu: dict[str, Any]) -> str:
    """Its MIG devices."""
    return "".join(
        "<mig_device>"
        + element("index", str(index))
        + element("gpu_instance_id", m["gi"])
        + element("compute_instance_id", m["ci"])
        + element("fb_memory_usage/used", f"{m.get('used', 0)} MiB")
        + "</mig_device>"
        for index, m in enumerate(gpu.get("migs", []))
    )


def query() -> str:
    """`-q -x`, as far as hooks read it."""
    text = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
    for gpu in state["gpus"]:
        text += f'<gpu id="{gpu["bus"]}">' + element("uuid", gpu["uuid"]) + element("pci/pci_bus_id", gpu["bus"])
        text += f"<fb_memory_usage><total>{gpu['total']} MiB</total><used>{gpu['used']}</used></fb_memory_usage>"
        text += "".join(element(path, value) for path, value in gpu["facts"].items())
        text += f"<mig_devices>{parts(gpu)}</mig_devices><processes>{processes(gpu)}</processes></gpu>"
    return text + "</nvidia_smi_log>"


def listing() -> str:
    """`-L`."""
    lines = []
    for index, gpu in enumerate(state["gpus"]):
        lines.append(f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: {gpu['uuid']})")
        lines += [
            f"  MIG 1g.10gb     Device  {position}: (UUID: {mig['uuid']})"
            for position, mig in enumerate(gpu.get("migs", []))
        ]
    return "\n".join(lines)


def change(arguments: list[str]) -> int:
    """`mig -i UUID -dci|-dgi|-lgi …`."""
    options = dict(itertools.pairwise(arguments))
    gpu = next(gpu for gpu in state["gpus"] if gpu["uuid"] == options["-i"])
    instance, compute = options.get("-gi"), options.get("-ci")
    places = gpu.setdefault("places", {})
    if "-cgi" in arguments:
        return create(gpu, options["-cgi"], places)
    if "-cci" in arguments:
        gpu["migs"].append({"gi": instance, "ci": "0", "uuid": f"MIG-{gpu['uuid']}-{instance}"})
        STATE.write_text(json.dumps(state))
        return 0
    if "-lgi" in arguments:
        for name in gpu["instances"]:
            profile, start, size = places.get(name, ("1g.10gb", 6, 1))
            print(f"|   0  MIG {profile:<15} 19       {name:>2}          {start}:{size}     |")
        if not gpu["instances"]:
            print("No GPU instances found: Not Found")
        return 0 if gpu["instances"] else 6
    if gpu.get("stuck"):
        print(f"Unable to destroy GPU instance ID  {gpu['stuck']} from GPU  0: In use by another client")
        return 19
    if gpu.get("lies"):
        return 0
    if "-dci" in arguments:
        gpu["migs"] = [m for m in gpu["migs"] if (instance and m["gi"] != instance) or (compute and m["ci"] != compute)]
    else:
        held = {m["gi"] for m in gpu["migs"]}
        gpu["instances"] = [name for name in gpu["instances"] if name in held or (instance and name != instance)]
        gpu["places"] = {name: place for name, place in places.items() if name in gpu["instances"]}
    STATE.write_text(json.dumps(state))
    return 0


def create(gpu: dict[str, Any], wanted: str, places: dict[str, Any]) -> int:
    """`mig -cgi PROFILE:START`."""
    profile, _, start = wanted.partition(":")
    size = {"1": 1, "2": 2, "3": 4, "7": 8}[profile[0]]
    taken = {slot for at in places.values() for slot in range(at[1], at[1] + at[2])}
    if gpu.get("refuses") or taken & set(range(int(start), int(start) + size)):
        print("Unable to create a GPU instance on GPU  0 using profile 19: Insufficient Resources")
        return 19
    if not gpu.get("lies"):
        name = str(max((int(each) for each in gpu["instances"]), default=0) + 1)
        gpu["instances"].append(name)
        places[name] = (profile, int(start), size)
        STATE.write_text(json.dumps(state))
    return 0


def set_mode(uuid: str, enabled: str) -> int:
    """`-i UUID -mig 0|1`."""
    gpu = next(gpu for gpu in state["gpus"] if gpu["uuid"] == uuid)
    if not gpu.get("pending"):
        gpu["facts"]["mig_mode/current_mig"] = "Enabled" if enabled == "1" else "Disabled"
        STATE.write_text(json.dumps(state))
    return 0


def main() -> int:
    """Exit status."""
    match sys.argv[1:]:
        case ["-q", "-x"]:
            time.sleep(state.get("hangs", 0))
            print(state.get("says", query()))
            return int(state.get("status", 0))
        case ["-L"]:
            print(listing())
            return 0
        case ["-i", uuid, "-mig", enabled]:
            return set_mode(uuid, enabled)
        case ["mig", *arguments]:
            return change(arguments)
    print(f"unknown: {sys.argv}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
