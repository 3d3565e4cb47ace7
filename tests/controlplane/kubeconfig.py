"""Kubeconfig files: who somebody is for the API server, and where it listens. Text only, with everything inside it, so
that the file may be copied anywhere."""

from __future__ import annotations

import base64
import json

from tests.controlplane.pki import KeyPair


def for_certificate(url: str, ca: bytes, name: str, pair: KeyPair) -> str:
    """A kubeconfig that logs in by client certificate."""
    return _render(
        url, ca, name, {"client-certificate-data": _encode(pair.certificate), "client-key-data": _encode(pair.key)}
    )


def for_token(url: str, ca: bytes, name: str, token: str) -> str:
    """A kubeconfig that logs in by bearer token."""
    return _render(url, ca, name, {"token": token})


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _render(url: str, ca: bytes, name: str, user: dict[str, str]) -> str:
    # JSON is YAML; written so, no name needs quoting by hand.
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "adjoin", "cluster": {"server": url, "certificate-authority-data": _encode(ca)}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "adjoin", "context": {"cluster": "adjoin", "user": name}}],
        "current-context": "adjoin",
    }
    return json.dumps(config, indent=1) + "\n"
