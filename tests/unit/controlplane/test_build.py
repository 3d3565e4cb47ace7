"""The builder of the control plane's programs: what is built, what is reused, what is refused, and what one sees."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.controlplane import build
from tests.controlplane.build import Toolchain, cache_key, cache_root, ensure
from tests.controlplane.errors import BuildError
from tests.controlplane.recipes import HERE, NODE, ORDINARY, Group, kubernetes_version, module_version, recipe

# A go that answers like the real one, writes down what it was asked, and "builds" by writing each package's name.
FAKE_GO = """#!/bin/sh
echo "$@" >> "$FAKE_GO_LOG"
case "$1" in
env) printf '%s\\nlinux\\namd64\\n' "${FAKE_GO_VERSION:-go1.26.8}"; exit 0 ;;
list) echo "$FAKE_MODULE"; exit 0 ;;
esac
[ -z "$FAKE_GO_FAILS" ] || { echo "k8s.io/api/core/v1" >&2; echo "x.go:1:1: syntax error" >&2; exit 1; }
echo "go: downloading k8s.io/api v0.37.2" >&2
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
for package in "$@"; do
    echo "$package" >&2
    name=${package##*/}
    case "$name" in v3) name=server ;; .) name=celoracle ;; esac
    sleep "${FAKE_GO_SECONDS:-0}"
    echo "built $package" > "$out/$name"
done
"""


class Go:
    """The fake, and what it was asked."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def builds(self) -> list[list[str]]:
        """The packages of every `go build`, in order."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [line.split()[line.split().index("-o") + 2 :] for line in lines if line.startswith("build ")]

    def asked(self) -> str:
        return self._log.read_text()


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    """A fake go in PATH, an empty cache, no ready-made programs."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    executable(binaries / "go", FAKE_GO)
    module = tmp_path / "module"
    for _, path in recipe(Group.KWOK).files:
        (module / path).parent.mkdir(parents=True, exist_ok=True)
        (module / path).write_text(f"kind: Stage # {path}\n")
    monkeypatch.setenv("PATH", f"{binaries}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE_GO_LOG", str(tmp_path / "go.log"))
    monkeypatch.setenv("FAKE_MODULE", str(module))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return Go(tmp_path / "go.log")


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def silent(line: str) -> None:
    """Progress that nobody reads."""


def test_programs_of_one_group_are_built_by_one_command(go: Go, tmp_path: Path) -> None:
    programs = ensure("controlplane", report=silent)
    assert len(go.builds()) == 1
    assert set(programs) == {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}
    assert programs["etcd"].read_text() == "built go.etcd.io/etcd/server/v3\n"
    assert programs["kubectl"].read_text() == "built k8s.io/kubernetes/cmd/kubectl\n"
    assert all(path.is_relative_to(tmp_path / "cache" / "adjoin") for path in programs.values())


def test_only_the_groups_asked_for_are_built(go: Go) -> None:
    assert set(ensure("celoracle", "helm", report=silent)) == {"celoracle", "helm"}
    assert go.builds() == [["."], ["helm.sh/helm/v4/cmd/helm"]]


def test_what_was_built_is_not_built_again(go: Go) -> None:
    first = ensure("controlplane", "kwok", report=silent)
    heard: list[str] = []
    assert ensure("controlplane", "kwok", report=heard.append) == first
    assert len(go.builds()) == 2
    assert heard == []


def test_a_program_that_vanished_from_the_cache_is_built_alone(go: Go) -> None:
    ensure("controlplane", report=silent)["kubectl"].unlink()
    ensure("controlplane", report=silent)
    assert go.builds()[1:] == [["k8s.io/kubernetes/cmd/kubectl"]]


def test_versions_are_stamped_from_go_mod(go: Go) -> None:
    ensure("controlplane", report=silent)
    version = kubernetes_version()
    minor = version.split(".")[1]
    assert f"gitVersion={version} " in go.asked()
    assert f"gitMinor={minor} " in go.asked()


def test_stages_are_taken_from_the_module(go: Go) -> None:
    stages = ensure("kwok", report=silent)["kwok-stages"]
    assert (stages / "pod-ready.yaml").read_text() == "kind: Stage # kustomize/stage/pod/fast/pod-ready.yaml\n"


def test_missing_go_is_said_with_what_to_do(go: Go, tmp_path: Path) -> None:
    (tmp_path / "bin" / "go").unlink()
    with pytest.raises(BuildError, match=r"go is not in PATH.*Go 1\.26 or newer.*KUBEBUILDER_ASSETS"):
        ensure("controlplane", report=silent)


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("go1.25.4", id="one minor too old"),
        pytest.param("go1.9", id="compared as number and not as text"),
    ],
)
def test_an_old_go_is_refused(go: Go, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", version)
    with pytest.raises(BuildError, match=rf"is {version}; Go 1\.26 or newer is needed"):
        ensure("helm", report=silent)
    assert go.builds() == []


@pytest.mark.parametrize("version", ["go1.26.0", "go1.27rc1", "go2.0", "devel go1.28-abcdef Mon"])
def test_a_new_enough_go_is_taken(go: Go, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("FAKE_GO_VERSION", version)
    assert ensure("helm", report=silent)["helm"].exists()


def test_a_failed_build_tells_the_compilers_words_and_leaves_nothing(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_FAILS", "yes")
    with pytest.raises(BuildError) as failure:
        ensure("helm", report=silent)
    assert "x.go:1:1: syntax error" in str(failure.value)
    assert "k8s.io/api/core/v1" not in str(failure.value)
    monkeypatch.setenv("FAKE_GO_FAILS", "")
    helm = ensure("helm", report=silent)["helm"]
    assert [path.name for path in helm.parent.iterdir()] == ["helm"]


def test_a_build_that_was_killed_is_cleaned_up_by_the_next(go: Go) -> None:
    helm = ensure("helm", report=silent)["helm"]
    helm.unlink()
    (helm.parent / ".build-dead").mkdir()
    (helm.parent / ".build-dead" / "helm").write_text("half")
    ensure("helm", report=silent)
    assert helm.read_text() == "built helm.sh/helm/v4/cmd/helm\n"
    assert [path.name for path in helm.parent.iterdir()] == ["helm"]


def test_builders_at_the_same_time_build_once(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_SECONDS", "0.5")
    found: list[dict[str, Path]] = []
    builders = [threading.Thread(target=lambda: found.append(ensure("helm", report=silent))) for _ in range(4)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert len(go.builds()) == 1
    assert len(found) == 4
    assert all(programs == found[0] for programs in found)


def test_a_builder_in_another_process_is_waited_for(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GO_SECONDS", "1")
    code = "from tests.controlplane.build import ensure; ensure('helm')"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=HERE.parent.parent, stderr=subprocess.PIPE, text=True
    ) as other:
        assert other.stderr is not None
        assert "building helm" in other.stderr.readline()
        heard: list[str] = []
        helm = ensure("helm", report=heard.append)["helm"]
        other.stderr.read()
    assert other.returncode == 0
    assert helm.exists()
    assert heard == ["helm: waiting for another build"]
    assert len(go.builds()) == 1


def test_progress_names_the_programs_and_the_state(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PROGRESS_SECONDS", 0.1)
    monkeypatch.setenv("FAKE_GO_SECONDS", "0.4")
    heard: list[str] = []
    ensure("controlplane", report=heard.append)
    assert heard[0].startswith("controlplane: building etcd, kube-apiserver, kube-controller-manager")
    assert any("1 modules fetched, 1 packages compiled, now go.etcd.io/etcd/server/v3" in line for line in heard)
    assert any(line.endswith("kube-scheduler is built") for line in heard)
    assert heard[-1].startswith("controlplane: ready after ")


def test_a_change_of_the_modules_or_of_go_is_another_key() -> None:
    kwok, helm = recipe(Group.KWOK), recipe(Group.HELM)
    here = Toolchain("go1.26.8", "linux/amd64")
    keys = {
        cache_key(kwok, here),
        cache_key(helm, here),
        cache_key(kwok, Toolchain("go1.26.9", "linux/amd64")),
        cache_key(kwok, Toolchain("go1.26.8", "darwin/arm64")),
    }
    assert len(keys) == 4
    assert cache_key(kwok, here) == cache_key(recipe(Group.KWOK), here)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"XDG_CACHE_HOME": "/var/cache"}, Path("/var/cache/adjoin"), id="where XDG says"),
        pytest.param({"XDG_CACHE_HOME": "cache"}, Path.home() / ".cache/adjoin", id="a relative path is ignored"),
        pytest.param({}, Path.home() / ".cache/adjoin", id="below the home folder otherwise"),
    ],
)
def test_the_cache_lies_outside_the_checkout(environment: dict[str, str], expected: Path) -> None:
    assert cache_root(environment) == expected


@pytest.mark.parametrize(
    ("go_mod", "expected"),
    [
        pytest.param("require (\n\tk8s.io/kubernetes v1.37.2\n)\n", "v1.37.2", id="in a block"),
        pytest.param("require k8s.io/kubernetes v1.37.2\n", "v1.37.2", id="on a line"),
    ],
)
def test_a_version_is_read_from_go_mod(go_mod: str, expected: str) -> None:
    assert module_version(go_mod, "k8s.io/kubernetes") == expected


def test_a_module_that_is_not_required_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"requires no k8s\.io/kubernetes"):
        module_version("require k8s.io/kubernetes/cmd v1.0.0\n", "k8s.io/kubernetes")


# ---------------------------------------------------------------- KUBEBUILDER_ASSETS


def assets(folder: Path, monkeypatch: pytest.MonkeyPatch, **says: str) -> Path:
    """A folder of ready-made programs that say this when asked for their version."""
    folder.mkdir()
    for name, text in says.items():
        executable(folder / name.replace("_", "-"), f"#!/bin/sh\necho '{text}'\n")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    return folder


def test_ready_made_programs_are_used_and_only_the_rest_is_built(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = assets(
        tmp_path / "assets",
        monkeypatch,
        etcd="etcd Version: 3.6.5",
        kube_apiserver="Kubernetes v1.37.0",
        kubectl="Client Version: v1.37.0",
    )
    programs = ensure("controlplane", report=silent)
    assert programs["kube-apiserver"] == folder / "kube-apiserver"
    assert go.builds() == [
        ["k8s.io/kubernetes/cmd/kube-controller-manager", "k8s.io/kubernetes/cmd/kube-scheduler"],
    ]


def test_go_is_not_needed_where_all_programs_are_ready_made(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "go").unlink()
    folder = assets(
        tmp_path / "assets",
        monkeypatch,
        etcd="etcd Version: 3.7.0",
        kube_apiserver="Kubernetes v1.37.2",
        kube_controller_manager="Kubernetes v1.37.2",
        kube_scheduler="Kubernetes v1.37.2",
        kubectl="Client Version: v1.37.2",
    )
    assert {path.parent for path in ensure("controlplane", report=silent).values()} == {folder}


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        pytest.param(
            {"kube_apiserver": "Kubernetes v1.34.1"},
            r"is v1\.34\.1, the tests need kube-apiserver 1\.37",
            id="an older one",
        ),
        pytest.param(
            {"kubectl": "Client Version: v1.38.0"},
            r"is v1\.38\.0, the tests need kubectl 1\.37",
            id="a newer one",
        ),
        pytest.param(
            {"etcd": "etcd Version: 3.5.21"},
            r"is 3\.5\.21, the tests need etcd 3\.6 or newer",
            id="an old etcd",
        ),
        pytest.param({"etcd": "hello"}, r"does not tell its version, it says: 'hello'", id="something else"),
    ],
)
def test_ready_made_programs_of_a_wrong_version_are_refused(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: dict[str, str], complaint: str
) -> None:
    assets(tmp_path / "assets", monkeypatch, **says)
    with pytest.raises(BuildError, match=complaint):
        ensure("controlplane", report=silent)
    assert go.builds() == []


# ---------------------------------------------------------------- a real node


def test_the_ordinary_tests_build_nothing_of_a_real_node() -> None:
    assert {*ORDINARY, *NODE} == set(Group)
    assert not {*ORDINARY} & {*NODE}


def test_the_programs_of_a_node_are_built_from_modules_of_their_own(go: Go) -> None:
    programs = ensure("kubelet", "containerd", "cni", "exampledriver", report=silent)
    assert {"kubelet", "dra-test-driver", "containerd", "ctr", "ptp", "dra-example-driver"} <= set(programs)
    assert programs["dra-test-driver"].read_text() == "built k8s.io/kubernetes/test/e2e/dra/test-driver\n"
    # containerd finds its plugins as the only files of a folder.
    assert {path.name for path in programs["ptp"].parent.iterdir()} == {"ptp", "loopback", "host-local"}
    assert len(go.builds()) == 4


def test_kubelet_and_control_plane_are_of_one_version() -> None:
    assert recipe(Group.KUBELET).version == kubernetes_version()


def test_only_runc_is_linked_with_c() -> None:
    assert [group for group in Group if recipe(group).links_seccomp] == [Group.RUNC]
    assert "seccomp" in recipe(Group.RUNC).tags
