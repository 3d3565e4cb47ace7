"""Answers as perftest's ib_write_bw does: without an address a server for one client, with one its client.

`bandwidth` in the JSON file named by FAKE_MACHINE gives Gb/s by "<RDMA device> <GPU uuid>"; null is a failure.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
from pathlib import Path

state = json.loads(Path(os.environ["FAKE_MACHINE"]).read_text())
arguments = sys.argv[1:]
if state.get("without_cuda"):
    print("ib_write_bw: unrecognized option '--use_cuda=0'", file=sys.stderr)
    sys.exit(1)
options = dict(itertools.pairwise(arguments))
port = int(options["-p"])
client = arguments[-1] == "127.0.0.1"
assert "--use_cuda=0" in arguments
assert "--report_gbits" in arguments
gbps = state["bandwidth"][f"{options['-d']} {os.environ['CUDA_VISIBLE_DEVICES']}"]
if gbps is None:
    print("Couldn't allocate MR", file=sys.stderr)
    sys.exit(1)
if client:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        print("Couldn't connect to 127.0.0.1", file=sys.stderr)
        sys.exit(1)
    if state.get("no_table"):
        sys.exit(0)
    print("                    RDMA_Write BW Test")
    print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
    print(f" 1048576    4000             {gbps + 1:.2f}              {gbps:.2f}             0.046")
else:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen(1)
        server.settimeout(30)
        server.accept()
