"""Answers as util-linux's dmesg does: `log` of the JSON file named by FAKE_MACHINE, a list of [seconds ago, text]."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

state = json.loads(Path(os.environ["FAKE_MACHINE"]).read_text())
if state.get("log") is None:
    print("dmesg: read kernel buffer failed: Operation not permitted", file=sys.stderr)
    sys.exit(1)
if sys.argv[1:] != ["--syslog"]:
    # Without it dmesg reads /dev/kmsg, which no container has.
    sys.exit(1)
for ago, text in state["log"]:
    print(f"[{time.monotonic() - ago:12.6f}] {text}")
