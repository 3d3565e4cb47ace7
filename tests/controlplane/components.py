"""The command line of every component, and the files it reads.

Comes in: `Options`, ports, paths of programs. Goes out: `Component` values, after `write_files` has put certificates,
configurations and kubeconfigs into the control plane's own folder. Nothing is started here.

What differs from a production cluster, and why: etcd listens on a socket in that folder (no port to fight over, nobody
else can write) and does not fsync (a crash of the machine may lose a test); no leader election, since there is one of
each; no endpoints for the API server's own Service, which must not point to loopback. Everything else is as shipped:
RBAC, admission plugins, priority and fairness, each component under its own name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane import audit, kubeconfig
from tests.controlplane.options import DEFAULT_NODE_LEASE_SECONDS, Options
from tests.controlplane.pki import Authority, new_signing_key
from tests.controlplane.ports import LOOPBACK
from tests.controlplane.recipes import OWN_STAGES

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"

# kwok looks after the nodes that carry this annotation, and after the pods on them.
SIMULATED_NODE = ("kwok.x-k8s.io/node", "fake")

SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"
EVERYWHERE = "0.0.0.0"
SERVICE_RANGE = "10.0.0.0/24"
# The first address of the range, which in-cluster clients would use.
SERVICE_ADDRESS = "10.0.0.1"
# kube-controller-manager's default; it counts from the last renewal of a node's Lease.
NODE_GRACE_SECONDS = 50


@dataclass(frozen=True, slots=True)
class Component:
    """One process: how it is started, and the URL that answers 200 once it works (None: the API server vouches)."""

    name: str
    argv: tuple[str, ...]
    health: str | None


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the files of one control plane are, below its folder."""

    root: Path

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def audit(self) -> Path:
        return self.logs / "audit"

    def kubeconfig(self, user: str) -> Path:
        return self.config / f"{user}.kubeconfig"


def wanted(options: Options) -> tuple[str, ...]:
    """The names of the components to run, in the order in which they are started."""
    return (
        ETCD,
        API_SERVER,
        *((CONTROLLER_MANAGER,) if options.controller_manager else ()),
        *((SCHEDULER,) if options.scheduler else ()),
        *((KWOK,) if options.kwok else ()),
    )


def write_files(layout: Layout, options: Options, authority: Authority, url: str, stages: Path | None) -> None:
    """Everything the components read when they start. `stages` is the folder of kwok's stages."""
    for folder in (layout.pki, layout.logs, layout.config, layout.home, layout.audit):
        folder.mkdir(parents=True)
    (layout.pki / "ca.crt").write_bytes(authority.certificate)
    hosts = [LOOPBACK, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", SERVICE_ADDRESS]
    hosts += [options.gateway] if options.gateway else []
    server = authority.issue_server("kube-apiserver", hosts=hosts)
    (layout.pki / "server.crt").write_bytes(server.certificate)
    (layout.pki / "server.key").write_bytes(server.key)
    signing = new_signing_key()
    (layout.pki / "service-account.key").write_bytes(signing.private)
    (layout.pki / "service-account.pub").write_bytes(signing.public)
    admin = authority.issue_client("admin", groups=["system:masters"])
    (layout.pki / "admin.crt").write_bytes(admin.certificate)
    (layout.pki / "admin.key").write_bytes(admin.key)
    if options.gateway:
        caller = authority.issue_client("kube-apiserver-kubelet-client", groups=["system:masters"])
        (layout.pki / "kubelet-client.crt").write_bytes(caller.certificate)
        (layout.pki / "kubelet-client.key").write_bytes(caller.key)
    _write_kubeconfig(layout, "admin", kubeconfig.for_certificate(url, authority.certificate, "admin", admin))
    # Their own users, as in a real cluster: so rights, priority levels and audit log tell the truth.
    for component, user, groups in (
        (CONTROLLER_MANAGER, "system:kube-controller-manager", ()),
        (SCHEDULER, "system:kube-scheduler", ()),
        (KWOK, "kwok", ("system:masters",)),
    ):
        pair = authority.issue_client(user, groups=groups)
        text = kubeconfig.for_certificate(url, authority.certificate, user, pair)
        _write_kubeconfig(layout, component, text)
    (layout.config / "audit-policy.yaml").write_text(json.dumps(audit.POLICY))
    (layout.config / "scheduler.yaml").write_text(json.dumps(scheduler_configuration(layout, options)))
    if stages is not None:
        texts = [OWN_STAGES.get(name, stages / f"{name}.yaml").read_text() for name in options.kwok_stages]
        (layout.config / "kwok.yaml").write_text("\n---\n".join(texts))


def scheduler_configuration(layout: Layout, options: Options) -> dict[str, object]:
    """KubeSchedulerConfiguration; what the options leave open stays out of it, so that Kubernetes' defaults hold."""
    connection: dict[str, object] = {"kubeconfig": str(layout.kubeconfig(SCHEDULER))}
    if options.scheduler_qps is not None:
        connection["qps"] = options.scheduler_qps
    if options.scheduler_burst is not None:
        connection["burst"] = options.scheduler_burst
    configuration: dict[str, object] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": connection,
    }
    if options.percentage_of_nodes_to_score is not None:
        configuration["percentageOfNodesToScore"] = options.percentage_of_nodes_to_score
    return configuration


def build(
    layout: Layout, options: Options, programs: Mapping[str, Path], ports: Mapping[str, int]
) -> dict[str, Component]:
    """The components that the options ask for, by name, in starting order."""
    makers = {
        ETCD: _etcd,
        API_SERVER: _api_server,
        CONTROLLER_MANAGER: _controller_manager,
        SCHEDULER: _scheduler,
        KWOK: _kwok,
    }
    components = {}
    for name in wanted(options):
        flags, health = makers[name](layout, options, ports.get(name, 0))
        components[name] = Component(name, (str(programs[name]), *flags), health)
    return components


def etcd_socket(layout: Layout) -> Path:
    """Where etcd listens; the kernel takes no path of more than 107 bytes."""
    return layout.root / "etcd.sock"


Made = tuple[tuple[str, ...], str | None]


def _etcd(layout: Layout, options: Options, port: int) -> Made:
    client = f"unix://{etcd_socket(layout)}"
    # A cluster of one has no peers; port 0 lets the kernel choose one that nobody will ever call.
    peer = f"http://{LOOPBACK}:0"
    flags = (
        f"--data-dir={layout.root / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )
    return flags, None


def _api_server(layout: Layout, options: Options, port: int) -> Made:
    flags = [
        f"--etcd-servers=unix://{etcd_socket(layout)}",
        f"--bind-address={EVERYWHERE if options.gateway else LOOPBACK}",
        f"--advertise-address={options.gateway or LOOPBACK}",
        f"--secure-port={port}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={layout.pki / 'server.crt'}",
        f"--tls-private-key-file={layout.pki / 'server.key'}",
        f"--client-ca-file={layout.pki / 'ca.crt'}",
        f"--service-account-key-file={layout.pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={layout.pki / 'service-account.key'}",
        f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--authorization-mode={'Node,RBAC' if options.gateway else 'RBAC'}",
        "--allow-privileged=true",
        *_switches("feature-gates", options.feature_gates),
        *_switches("runtime-config", options.runtime_config),
        f"--v={options.verbosity}",
    ]
    if options.gateway:
        flags += [
            "--enable-admission-plugins=NodeRestriction",
            f"--kubelet-client-certificate={layout.pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={layout.pki / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
        ]
    if options.audit:
        flags += [
            f"--audit-policy-file={layout.config / 'audit-policy.yaml'}",
            f"--audit-log-path={layout.audit / 'audit.log'}",
        ]
    return tuple(flags), f"https://{LOOPBACK}:{port}/readyz"


def _controller_manager(layout: Layout, options: Options, port: int) -> Made:
    flags = [
        *_served_on(layout, port),
        f"--kubeconfig={layout.kubeconfig(CONTROLLER_MANAGER)}",
        f"--service-account-private-key-file={layout.pki / 'service-account.key'}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        # It would make the default one, outside of our folder.
        f"--flex-volume-plugin-dir={layout.home}",
        *_switches("feature-gates", options.feature_gates),
        f"--v={options.verbosity}",
    ]
    if options.node_lease_seconds != DEFAULT_NODE_LEASE_SECONDS:
        grace = NODE_GRACE_SECONDS * options.node_lease_seconds // DEFAULT_NODE_LEASE_SECONDS
        flags.append(f"--node-monitor-grace-period={grace}s")
    if options.controller_manager_qps is not None:
        flags.append(f"--kube-api-qps={options.controller_manager_qps}")
    if options.controller_manager_burst is not None:
        flags.append(f"--kube-api-burst={options.controller_manager_burst}")
    return tuple(flags), f"https://{LOOPBACK}:{port}/healthz"


def _scheduler(layout: Layout, options: Options, port: int) -> Made:
    flags = (
        *_served_on(layout, port),
        f"--config={layout.config / 'scheduler.yaml'}",
        *_switches("feature-gates", options.feature_gates),
        f"--v={options.verbosity}",
    )
    return flags, f"https://{LOOPBACK}:{port}/readyz"


def _served_on(layout: Layout, port: int) -> tuple[str, ...]:
    return (
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.pki / 'server.crt'}",
        f"--tls-private-key-file={layout.pki / 'server.key'}",
    )


def _kwok(layout: Layout, options: Options, port: int) -> Made:
    flags = (
        f"--kubeconfig={layout.kubeconfig(KWOK)}",
        f"--config={layout.config / 'kwok.yaml'}",
        f"--manage-nodes-with-annotation-selector={'='.join(SIMULATED_NODE)}",
        f"--node-lease-duration-seconds={options.node_lease_seconds}",
        f"--server-address={LOOPBACK}:{port}",
        # Its INFO is a line for each patch it sends.
        f"--v={'WARN' if options.verbosity < 2 else 'INFO'}",
    )
    return flags, f"http://{LOOPBACK}:{port}/healthz"


def _switches(flag: str, values: Mapping[str, bool]) -> Iterator[str]:
    if values:
        yield f"--{flag}=" + ",".join(f"{name}={str(on).lower()}" for name, on in sorted(values.items()))


def _write_kubeconfig(layout: Layout, name: str, text: str) -> None:
    layout.kubeconfig(name).write_text(text)
