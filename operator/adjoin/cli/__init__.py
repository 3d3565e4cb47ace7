"""The command line: `adjoin …`, and the same program as kubectl's plugin `kubectl adjoin …`.

Offline commands load neither kopf nor a Kubernetes client nor a web server; only `run` does.
"""

from adjoin.cli.main import main

__all__ = ["main"]
