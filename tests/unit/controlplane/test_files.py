"""What the control plane's components read: certificates, kubeconfigs, flags; and what is read back from the audit
log."""

from __future__ import annotations

import base64
import json
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from tests.controlplane import audit, components, kubeconfig
from tests.controlplane.components import Layout
from tests.controlplane.nodes import simulate, simulated_node
from tests.controlplane.options import Options
from tests.controlplane.pki import Authority, KeyPair, new_signing_key

PORTS = {"kube-apiserver": 1001, "kube-controller-manager": 1002, "kube-scheduler": 1003, "kwok": 1004}
PROGRAMS = {name: Path("/programs") / name for name in ("etcd", *PORTS)}


# ---------------------------------------------------------------- certificates


def handshake(server: KeyPair, server_ca: bytes, client: KeyPair, client_ca: bytes, host: str, folder: Path) -> Any:
    """A TLS handshake in memory, as strict as OpenSSL can be; returns the client's subject as the server sees it."""

    def context(side: int, pair: KeyPair, trusted: bytes) -> ssl.SSLContext:
        made = ssl.SSLContext(side)
        made.verify_mode = ssl.CERT_REQUIRED
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        made.load_verify_locations(cadata=trusted.decode())
        (folder / "crt").write_bytes(pair.certificate)
        (folder / "key").write_bytes(pair.key)
        made.load_cert_chain(folder / "crt", folder / "key")
        return made

    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = context(ssl.PROTOCOL_TLS_CLIENT, client, server_ca).wrap_bio(to_client, to_server, server_hostname=host)
    other = context(ssl.PROTOCOL_TLS_SERVER, server, client_ca).wrap_bio(to_server, to_client, server_side=True)
    waiting = [one, other]
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert waiting == []
    return other.getpeercert()["subject"]  # type: ignore[index]


@pytest.mark.parametrize("host", ["127.0.0.1", "kubernetes.default.svc"])
def test_both_sides_trust_what_the_authority_issued(host: str, tmp_path: Path) -> None:
    ca = Authority()
    server = ca.issue_server("kube-apiserver", hosts=["127.0.0.1", "kubernetes.default.svc"])
    client = ca.issue_client("jane", groups=["team-a", "team-b"])
    subject = handshake(server, ca.certificate, client, ca.certificate, host, tmp_path)
    assert [pair for ((name, pair),) in subject if name == "organizationName"] == ["team-a", "team-b"]
    assert [pair for ((name, pair),) in subject if name == "commonName"] == ["jane"]


@pytest.mark.parametrize(
    ("host", "stranger"),
    [
        pytest.param("10.1.2.3", "", id="a host that is not in the certificate"),
        pytest.param("127.0.0.1", "server", id="a server of another authority"),
        pytest.param("127.0.0.1", "client", id="a client of another authority"),
        pytest.param("127.0.0.1", "usage", id="a client's certificate used by a server"),
    ],
)
def test_nothing_else_is_trusted(host: str, stranger: str, tmp_path: Path) -> None:
    ca, other = Authority(), Authority()
    server = (other if stranger == "server" else ca).issue_server("kube-apiserver", hosts=["127.0.0.1"])
    client = (other if stranger == "client" else ca).issue_client("jane")
    if stranger == "usage":
        server = ca.issue_client("127.0.0.1")
    with pytest.raises(ssl.SSLError):
        handshake(server, ca.certificate, client, ca.certificate, host, tmp_path)


def test_the_signing_key_of_tokens_is_a_pair() -> None:
    pair = new_signing_key()
    private = load_pem_private_key(pair.private, None)
    assert private.public_key() == load_pem_public_key(pair.public)


def test_certificates_hold_now_and_for_the_longest_run() -> None:
    certificate = x509.load_pem_x509_certificate(Authority().issue_client("jane").certificate)
    assert certificate.not_valid_before_utc < datetime.now(UTC)
    assert (certificate.not_valid_after_utc - datetime.now(UTC)).days >= 29


# ---------------------------------------------------------------- kubeconfigs


def test_a_kubeconfig_carries_everything_inside() -> None:
    config = yaml.safe_load(kubeconfig.for_certificate("https://127.0.0.1:1", b"CA", "a: b", KeyPair(b"CRT", b"KEY")))
    context = {c["name"]: c["context"] for c in config["contexts"]}[config["current-context"]]
    cluster = {c["name"]: c["cluster"] for c in config["clusters"]}[context["cluster"]]
    user = {u["name"]: u["user"] for u in config["users"]}[context["user"]]
    assert context["user"] == "a: b"
    assert cluster["server"] == "https://127.0.0.1:1"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"CA"
    assert {key: base64.b64decode(value) for key, value in user.items()} == {
        "client-certificate-data": b"CRT",
        "client-key-data": b"KEY",
    }


def test_a_kubeconfig_with_a_token_has_no_certificate() -> None:
    config = json.loads(kubeconfig.for_token("https://127.0.0.1:1", b"CA", "sa", "secret"))
    assert config["users"] == [{"name": "sa", "user": {"token": "secret"}}]


# ---------------------------------------------------------------- flags


def flags(options: Options, root: Path) -> dict[str, list[str]]:
    """The flags of each component that these options start."""
    made = components.build(Layout(root), options, PROGRAMS, PORTS)
    return {name: list(component.argv[1:]) for name, component in made.items()}


def test_by_default_everything_runs_in_order_and_nothing_is_tuned(tmp_path: Path) -> None:
    made = flags(Options(), tmp_path)
    assert list(made) == ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]
    tuning = ("feature-gates", "runtime-config", "kube-api-qps", "kube-api-burst", "grace-period", "audit")
    assert [flag for each in made.values() for flag in each if any(word in flag for word in tuning)] == []
    assert components.scheduler_configuration(Layout(tmp_path), Options()) == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(tmp_path / "config/kube-scheduler.kubeconfig")},
    }


@pytest.mark.parametrize(
    ("options", "component", "flag"),
    [
        pytest.param(
            Options(feature_gates={"B": False, "A": True}),
            "kube-scheduler",
            "--feature-gates=A=true,B=false",
            id="feature gates, in a fixed order",
        ),
        pytest.param(
            Options(feature_gates={"A": True}), "kube-controller-manager", "--feature-gates=A=true", id="for all three"
        ),
        pytest.param(
            Options(runtime_config={"resource.k8s.io/v1beta1": True}),
            "kube-apiserver",
            "--runtime-config=resource.k8s.io/v1beta1=true",
            id="API versions",
        ),
        pytest.param(
            Options(controller_manager_qps=200.0), "kube-controller-manager", "--kube-api-qps=200.0", id="limits"
        ),
        pytest.param(
            Options(node_lease_seconds=400),
            "kube-controller-manager",
            "--node-monitor-grace-period=500s",
            id="patience grows with the Leases",
        ),
        pytest.param(Options(node_lease_seconds=400), "kwok", "--node-lease-duration-seconds=400", id="Leases"),
    ],
)
def test_an_option_becomes_a_flag(options: Options, component: str, flag: str, tmp_path: Path) -> None:
    assert flag in flags(options, tmp_path)[component]


def test_the_audit_log_is_written_where_it_is_read(tmp_path: Path) -> None:
    assert (
        f"--audit-log-path={Layout(tmp_path).audit / 'audit.log'}"
        in flags(Options(audit=True), tmp_path)["kube-apiserver"]
    )


def test_kwok_reads_exactly_the_stages_asked_for(tmp_path: Path) -> None:
    stages = tmp_path / "stages"
    stages.mkdir()
    for name in ("pod-ready", "pod-delete"):
        (stages / f"{name}.yaml").write_text(f"kind: Stage\nmetadata: {{name: {name}}}\n")
    layout = Layout(tmp_path / "root")
    components.write_files(
        layout, Options(kwok_stages=("pod-ready", "pod-delete")), Authority(), "https://127.0.0.1:1", stages
    )
    written = list(yaml.safe_load_all((layout.config / "kwok.yaml").read_text()))
    assert [stage["metadata"]["name"] for stage in written] == ["pod-ready", "pod-delete"]


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        pytest.param({"kwok_stages": ("pod-redy",)}, "pod-redy is unknown; known are node-initialize", id="a stage"),
        pytest.param({"node_lease_seconds": 0}, "node_lease_seconds: below 4", id="a Lease that is always over"),
    ],
)
def test_an_option_that_means_nothing_is_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Options(**wrong)


# ---------------------------------------------------------------- nodes


def test_a_simulated_node_is_ready_and_kwoks() -> None:
    node = simulated_node("n", labels={"a": "b"}, allocatable={"cpu": "4"})
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    assert node["metadata"]["labels"].items() >= {"a": "b", "kubernetes.io/hostname": "n"}.items()
    assert node["status"]["allocatable"] == node["status"]["capacity"] == {"cpu": "4"}
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"


def test_what_a_manifest_says_itself_stays() -> None:
    manifest = {
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"kubernetes.io/arch": "arm64"}, "annotations": {"mine": "1"}},
        "status": {"allocatable": {"cpu": "2"}, "conditions": []},
    }
    before = json.dumps(manifest)
    node = simulate(manifest)
    assert node["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake", "mine": "1"}
    assert (node["status"]["conditions"], node["status"]["capacity"]) == ([], {"cpu": "2"})
    assert json.dumps(manifest) == before


# ---------------------------------------------------------------- audit


def event(name: str, *, user: str = "jane", verb: str = "create", second: int = 1) -> str:
    return (
        json.dumps(
            {
                "requestReceivedTimestamp": f"2026-01-01T00:00:{second:02d}.123456Z",
                "verb": verb,
                "user": {"username": user},
                "objectRef": {
                    "resource": "pods",
                    "apiGroup": "",
                    "namespace": "ns",
                    "name": name,
                    "subresource": "status",
                },
                "responseStatus": {"code": 201},
                "requestURI": f"/api/v1/namespaces/ns/pods/{name}",
                "userAgent": "test/1",
            }
        )
        + "\n"
    )


def test_requests_are_read_over_rotated_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "audit-2026-01-01T00-00-02.000.log").write_text(event("one") + event("two"))
    os.utime(tmp_path / "audit-2026-01-01T00-00-02.000.log", (1, 1))
    (tmp_path / "audit.log").write_text(event("three", verb="watch") + event("four")[:-20])
    read = list(audit.read_requests(tmp_path))
    assert [request.name for request in read] == ["one", "two", "three"]
    assert [request.is_write for request in read] == [True, True, False]
    assert read[0].received == datetime(2026, 1, 1, 0, 0, 1, 123456, tzinfo=UTC)
    assert (read[0].user, read[0].code, read[0].resource, read[0].subresource) == ("jane", 201, "pods", "status")


def test_a_request_without_object_is_read_too(tmp_path: Path) -> None:
    line = {"requestReceivedTimestamp": "2026-01-01T00:00:01.0Z", "verb": "get", "requestURI": "/healthz"}
    (tmp_path / "audit.log").write_text(json.dumps(line) + "\n")
    [request] = audit.read_requests(tmp_path)
    assert (request.uri, request.user, request.resource, request.code) == ("/healthz", "", "", 0)
