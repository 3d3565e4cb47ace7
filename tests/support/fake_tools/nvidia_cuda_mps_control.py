"""Answers as nvidia-cuda-mps-control does; the daemon's limits stand in a file in its pipe directory."""

import json
import os
import sys
from pathlib import Path

PIPE = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
if (PIPE / "dead").exists():
    print("Cannot find MPS control daemon process")
    sys.exit(1)
FILE = PIPE / "limits.json"
limits = json.loads(FILE.read_text()) if FILE.exists() else {}
for line in sys.stdin:
    match line.split():
        case ["set_default_active_thread_percentage", percent]:
            if not (PIPE / "ignores").exists():
                limits["percent"] = float(percent)
        case ["set_default_device_pinned_mem_limit", _, amount]:
            if not (PIPE / "ignores").exists():
                limits["memory"] = amount
        case ["get_default_active_thread_percentage"]:
            print(limits.get("percent", 100.0))
        case ["get_default_device_pinned_mem_limit", _]:
            print(limits.get("memory", ""))
        case other:
            print(f"unknown: {other}")
            sys.exit(1)
FILE.write_text(json.dumps(limits))
