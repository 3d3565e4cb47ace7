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
KUBERNETES_MODULE = "k8s.io/kubernetes"


class Group(StrEnum):
    """Programs that are built together; a caller asks for the groups it needs."""

    CONTROLPLANE = "controlplane"
    KWOK = "kwok"
    HELM = "helm"
    CELORACLE = "celoracle"


@dataclass(frozen=True, slots=True)
class Program:
    """One binary: its Go package, the name that `go build` gives it, and the name it is stored under."""

    name: str
    package: str
    built_as: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one group is built. `files` maps a stored name to a path inside the module `main_module`."""

    group: Group
    directory: Path
    main_module: str
    version: str
    programs: tuple[Program, ...]
    link_flags: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
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
    if group is Group.CONTROLPLANE:
        version = kubernetes_version()
        major, minor, _ = version.removeprefix("v").split(".", 2)
        # Without these the programs call themselves v0.0.0, at /version and as user agents, and clients reason from
        # that.
        stamps = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
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
            link_flags=tuple(f"-X {stamp}.{name}={value}" for stamp in stamps for name, value in facts.items()),
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
