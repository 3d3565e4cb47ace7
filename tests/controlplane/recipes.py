"""What is built from which Go module: the groups, their programs, link flags and files taken along.

Comes in: the go.mod files beside this module. Goes out: `Recipe` values. Nothing is run here.
A version is written once, in go.mod; whatever needs it (link flags, checks, names of folders) reads it from there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

HERE = Path(__file__).resolve().parent
NODE_MODULES = HERE.parent / "node" / "modules"
KUBERNETES_MODULE = "k8s.io/kubernetes"


class Group(StrEnum):
    """Programs that are built together; a caller asks for the groups it needs."""

    CONTROLPLANE = "controlplane"
    KWOK = "kwok"
    HELM = "helm"
    CELORACLE = "celoracle"
    KUBELET = "kubelet"
    CONTAINERD = "containerd"
    RUNC = "runc"
    CNI = "cni"
    EXAMPLE_DRIVER = "exampledriver"


NODE = (Group.KUBELET, Group.CONTAINERD, Group.RUNC, Group.CNI, Group.EXAMPLE_DRIVER)
"""What a real node needs beside the control plane; never built for the ordinary tests."""
ORDINARY = tuple(group for group in Group if group not in NODE)


@dataclass(frozen=True, slots=True)
class Program:
    """One binary: its Go package, the name that `go build` gives it, and the name it is stored under."""

    name: str
    package: str
    built_as: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one group is built. `files` maps a stored name to a path inside the module `main_module`; `tags` are build
    tags; `links_seccomp` says that it is C too, linked with libseccomp."""

    group: Group
    directory: Path
    main_module: str
    version: str
    programs: tuple[Program, ...]
    link_flags: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    links_seccomp: bool = False
    files: tuple[tuple[str, str], ...] = ()
    cold_hint: str = ""


# Stages tell kwok what a simulated kubelet does and when. The pair of pod-complete stages differ: the plain one ends
# the pod of a Job at once, the other after 1 to 6 s, or as long as the pod's annotations
# pod-complete.stage.kwok.x-k8s.io/delay and …/jitter-delay say.
STAGES = {
    "node-initialize": "kustomize/stage/node/fast/node-initialize.yaml",
    "node-heartbeat-with-lease": "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod-ready": "kustomize/stage/pod/fast/pod-ready.yaml",
    "pod-complete": "kustomize/stage/pod/fast/pod-complete.yaml",
    "pod-complete-delayed": "kustomize/stage/pod/general/pod-complete.yaml",
    "pod-delete": "kustomize/stage/pod/fast/pod-delete.yaml",
}


OWN_STAGES = {path.stem: path for path in sorted((HERE / "stages").glob("*.yaml"))}
"""Stages of our own. kwok's pod-delete takes a pod away while its containers still run, which no kubelet does; pod-stop
and pod-gone end them first."""


def module_version(go_mod: str, module: str) -> str:
    """The version that the text of a go.mod requires of a module, as written there (v1.2.3)."""
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(module)}\s+(v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError(f"go.mod requires no {module}")
    return found.group(1)


def kubernetes_version() -> str:
    """The version of Kubernetes the tests stand on (v1.37.2)."""
    return module_version((HERE / "go.mod").read_text(), KUBERNETES_MODULE)


def recipe(group: Group) -> Recipe:
    """The recipe of a group, with the versions its go.mod says."""
    if group in NODE:
        return _node_recipe(group)
    if group is Group.CONTROLPLANE:
        version = kubernetes_version()
        return Recipe(
            group=group,
            directory=HERE,
            main_module=KUBERNETES_MODULE,
            version=version,
            programs=(
                Program("etcd", "go.etcd.io/etcd/server/v3", "server"),
                *(
                    Program(name, f"{KUBERNETES_MODULE}/cmd/{name}", name)
                    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
                ),
            ),
            link_flags=_kubernetes_stamps(version),
            cold_hint="6 to 14 minutes",
        )
    if group is Group.KWOK:
        module, directory = "sigs.k8s.io/kwok", HERE / "kwok"
        version = module_version((directory / "go.mod").read_text(), module)
        return Recipe(
            group=group,
            directory=directory,
            main_module=module,
            version=version,
            programs=(Program("kwok", f"{module}/cmd/kwok", "kwok"),),
            files=tuple((f"stages/{name}.yaml", path) for name, path in STAGES.items()),
            cold_hint="about a minute",
        )
    if group is Group.HELM:
        module, directory = "helm.sh/helm/v4", HERE / "helm"
        version = module_version((directory / "go.mod").read_text(), module)
        return Recipe(
            group=group,
            directory=directory,
            main_module=module,
            version=version,
            programs=(Program("helm", f"{module}/cmd/helm", "helm"),),
            link_flags=(f"-X {module}/internal/version.version={version}",),
            cold_hint="2 to 4 minutes",
        )
    module, directory = "k8s.io/dynamic-resource-allocation", HERE / "celoracle"
    return Recipe(
        group=group,
        directory=directory,
        main_module=module,
        version=module_version((directory / "go.mod").read_text(), module),
        programs=(Program("celoracle", ".", "celoracle"),),
        sources=("main.go",),
        cold_hint="about 1 minute",
    )


def _kubernetes_stamps(version: str) -> tuple[str, ...]:
    """Without these the programs call themselves v0.0.0, at /version, as user agents and in Node objects, and clients
    reason from that."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return tuple(f"-X {stamp}.{name}={value}" for stamp in stamps for name, value in facts.items())


def _node_recipe(group: Group) -> Recipe:
    directory = NODE_MODULES / group
    go_mod = (directory / "go.mod").read_text()
    if group is Group.KUBELET:
        module, hint = KUBERNETES_MODULE, "3 to 5 minutes"
        programs = {"kubelet": "cmd/kubelet", "dra-test-driver": "test/e2e/dra/test-driver"}
    elif group is Group.CONTAINERD:
        module, hint = "github.com/containerd/containerd/v2", "1 to 2 minutes"
        programs = {name: f"cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")}
    elif group is Group.RUNC:
        module, hint = "github.com/opencontainers/runc", "half a minute"
        programs = {"runc": "."}
    elif group is Group.CNI:
        module, hint = "github.com/containernetworking/plugins", "half a minute"
        places = ("main/ptp", "main/loopback", "ipam/host-local")
        programs = {place.split("/")[1]: f"plugins/{place}" for place in places}
    else:
        module, hint = "sigs.k8s.io/dra-example-driver", "1 to 2 minutes"
        programs = {"dra-example-driver": "cmd/dra-example-kubeletplugin"}
    version = module_version(go_mod, module)
    return Recipe(
        group=group,
        directory=directory,
        main_module=module,
        version=version,
        programs=tuple(
            Program(name, module if place == "." else f"{module}/{place}", Path(module if place == "." else place).name)
            for name, place in programs.items()
        ),
        link_flags=_link_flags(group, version),
        # Every pod's sandbox asks for the runtime's seccomp profile, which a runc without seccomp refuses.
        tags=("seccomp", "netgo", "osusergo") if group is Group.RUNC else (),
        links_seccomp=group is Group.RUNC,
        cold_hint=hint,
    )


def _link_flags(group: Group, version: str) -> tuple[str, ...]:
    if group is Group.KUBELET:
        return _kubernetes_stamps(version)
    if group is Group.CONTAINERD:
        return (f"-X github.com/containerd/containerd/v2/version.Version={version}",)
    if group is Group.RUNC:
        return ("-linkmode external", '-extldflags "-static"')
    return ()
