"""The files of `examples/hooks`: valid, made of each other, with the least rights, and as the README says."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import hooks

from adjoin.api.claim import DeviceClaim
from adjoin.api.errors import ErrorKind
from adjoin.api.parse import parse_strict
from adjoin.api.pool import DevicePool
from adjoin.api.pool_checks import check_pool
from adjoin.api.validate import validate

Obj = dict[str, Any]
ROOT = hooks.FOLDER.parents[1]
NAMES = (*hooks.INIT, *hooks.CLEANUP)
CAPABILITIES = {
    "gpu-errors": ["SYSLOG"],
    "gpudirect-bandwidth": ["IPC_LOCK"],
    "mig-teardown": ["SYS_ADMIN"],
    "mig-partition": ["SYS_ADMIN"],
}
REACH = {"mps-limits": "/run/adjoin/mps", "sriov-vf": "/sys"}
"""Folders of the node that a hook needs: what it changes is nowhere else."""
SCRIPTS = [name.removesuffix(".py") for name in hooks.script_names()]
README = (hooks.FOLDER / "README.md").read_text()


def entry(name: str) -> Obj:
    """An entry of spec.lifecycle."""
    found: Obj = yaml.safe_load((hooks.ENTRIES / f"{name}.yaml").read_text())
    return found


def pool() -> Obj:
    """The DevicePool."""
    found: Obj = yaml.safe_load((hooks.FOLDER / "pool.yaml").read_text())
    return found


def container(name: str) -> Obj:
    """The only container of an entry."""
    (found,) = entry(name)["template"]["spec"]["containers"]
    return dict(found)


def script_of(name: str) -> str:
    """The script that an entry runs."""
    return next(Path(each).stem for each in container(name)["command"] if each.endswith(".py"))


@pytest.fixture(scope="module")
def checks() -> Iterator[dict[str, Any]]:
    """Every hook's `CHECK` by the name of its script. The scripts are no package: they are taken off again."""
    before = set(sys.modules)
    sys.path.insert(0, str(hooks.SCRIPTS))
    try:
        yield {name: importlib.import_module(name).CHECK for name in SCRIPTS if name not in hooks.LIBRARIES}
        constants = importlib.import_module("hook")
        assert constants.DEADLINE_SECONDS < 300
    finally:
        sys.path.remove(str(hooks.SCRIPTS))
        for name in set(sys.modules) - before:
            if name in SCRIPTS:
                del sys.modules[name]


def test_made_files_are_as_made() -> None:
    """`python -m tests.support.hooks` writes them anew."""
    assert (hooks.FOLDER / "scripts.yaml").read_text() == hooks.scripts_yaml()
    assert (hooks.FOLDER / "pool.yaml").read_text() == hooks.pool_yaml()


def test_the_config_map_carries_the_scripts_as_they_are() -> None:
    config_map = yaml.safe_load((hooks.FOLDER / "scripts.yaml").read_text())
    assert config_map["data"] == {path.name: path.read_text() for path in hooks.SCRIPTS.glob("*.py")}
    assert {script_of(name) for name in (*NAMES, *hooks.SHARING)} | set(hooks.LIBRARIES) == set(SCRIPTS)
    for name in NAMES:
        volume, *_ = entry(name)["template"]["spec"]["volumes"]
        assert volume["configMap"]["name"] == config_map["metadata"]["name"]


def test_the_pool_has_all_entries() -> None:
    lifecycle = pool()["spec"]["lifecycle"]
    assert lifecycle["init"] == [entry(name) for name in hooks.INIT]
    assert lifecycle["cleanup"] == [entry(name) for name in hooks.CLEANUP]
    assert sorted((*NAMES, *hooks.SHARING)) == sorted(path.stem for path in hooks.ENTRIES.glob("*.yaml"))


@pytest.mark.parametrize("file", ["pool.yaml", "claims.yaml"])
def test_pool_and_claim_are_valid(file: str) -> None:
    """As far as the model goes; admission may refuse them only as not supported yet."""
    obj = yaml.safe_load((hooks.FOLDER / file).read_text())
    if obj["kind"] == "DevicePool":
        assert list(check_pool(parse_strict(DevicePool, obj))) == []
    else:
        parse_strict(DeviceClaim, obj)
    assert [error for error in validate(obj) if error.kind is not ErrorKind.UNSUPPORTED] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_template_has_the_least_rights(name: str) -> None:
    spec, security = entry(name)["template"]["spec"], container(name)["securityContext"]
    added = CAPABILITIES.get(name, [])
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [list(volume) for volume in spec["volumes"]] == [["name", "configMap"]]
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName", "hostUsers"} & set(spec)
    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], **({"add": added} if added else {})},
    }
    if added:
        assert spec["securityContext"]["runAsUser"] == 0, "a capability counts for root only"
    else:
        assert spec["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize("name", hooks.SHARING)
def test_a_template_that_makes_parts_has_no_more_rights_than_that_takes(name: str) -> None:
    spec, security = entry(name)["template"]["spec"], container(name)["securityContext"]
    added = CAPABILITIES.get(name, [])
    paths = [volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume]
    assert paths == ([REACH[name]] if name in REACH else [])
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & set(spec)
    assert spec["automountServiceAccountToken"] is (name == "node-config")
    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], **({"add": added} if added else {})},
    }


@pytest.mark.parametrize("name", [*NAMES, *hooks.SHARING])
def test_a_template_names_a_public_image_and_an_interpreter(name: str) -> None:
    found = container(name)
    assert found["command"][:2] == ["python3", "-B"]
    assert re.fullmatch(r"[a-z0-9-]+(/[a-z0-9-]+)?(:[\w.-]+)?", found["image"]), "without the host of a registry"
    assert entry(name)["timeout"] == "5m", "longer than a hook's own deadline"


@pytest.mark.parametrize("name", hooks.script_names())
def test_a_script_needs_no_newer_python_than_it_says_and_no_package(name: str) -> None:
    tree = ast.parse((hooks.SCRIPTS / name).read_text(), feature_version=(3, 8))
    imported = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    } | {(node.module or "").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names) | set(hooks.LIBRARIES)


def test_an_entry_runs_in_a_phase_that_its_script_is_for(checks: dict[str, Any]) -> None:
    for phase, names in (("init", hooks.INIT), ("cleanup", hooks.CLEANUP)):
        for name in names:
            assert phase in checks[script_of(name)].phases, name
        for name in hooks.SHARING:
            assert phase in checks[script_of(name)].phases, name


def test_the_pool_offers_what_scripts_understand(checks: dict[str, Any]) -> None:
    known = {name: parameter for check in checks.values() for name, parameter in check.parameters.items()}
    for parameter in pool()["spec"]["lifecycle"]["parameters"]:
        for value in parameter["values"]:
            assert re.fullmatch(known[parameter["name"]].pattern, value), parameter


def test_the_readme_tells_all_parameters(checks: dict[str, Any]) -> None:
    told = set(re.findall(r"^\| `([\w-]+)` \| `[\w-]+`[^|]* \|[^|]*\| `([\w/-]+)` \|$", README, re.MULTILINE))
    assert told == {(name, p.default) for check in checks.values() for name, p in check.parameters.items()}


def test_the_readme_tells_all_entries_and_their_rights() -> None:
    for name in NAMES:
        phase = "init" if name in hooks.INIT else "cleanup"
        assert re.search(rf"^\| `{name}` \| {phase} \|", README, re.MULTILINE), name
    for name in hooks.SHARING:
        assert re.search(rf"^\| `{name}` \| both \|", README, re.MULTILINE), name
    told = dict(re.findall(r"^\| `([\w-]+)` \| `([A-Z_]+)` \|", README, re.MULTILINE))
    assert told == {name: capability for name, (capability,) in CAPABILITIES.items()}


def test_the_readme_says_what_a_simulation_prints() -> None:
    found = re.search(
        r"```sh\n(export ADJOIN_PHASE.*?)```\n\s*```text\n(.*?)```\n\s*Exit status: (\d)", README, re.DOTALL
    )
    assert found is not None
    command, output, status = found.groups()
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    ran = subprocess.run(
        ["/bin/sh", "-c", command], cwd=ROOT, env={"PATH": path}, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.returncode) == (output, int(status)), ran.stderr


HANGING = """
import sys
sys.path.insert(0, "scripts")
import hook
hook.DEADLINE_SECONDS = 1
sys.argv[1:] = ["--termination-log", "/dev/null"]
hook.run(hook.Check("x", lambda d: True, "x", OBSERVE, None, None, None))
"""


@pytest.mark.parametrize(
    ("observe", "says"),
    [
        pytest.param("lambda c: hook.run_tool(['sleep', '600'], 0.1)", "sleep did not answer", id="tool"),
        pytest.param("lambda c: __import__('time').sleep(600)", "not done after 1 s", id="anything else"),
        pytest.param("lambda c: 1 / 0", "ZeroDivisionError", id="no hang but a mistake"),
        pytest.param("lambda c: []", "were not looked at", id="a device forgotten"),
    ],
)
def test_whatever_hangs_or_breaks_in_a_hook_ends_as_unjudged(observe: str, says: str) -> None:
    devices = '[{"name": "gpu", "driver": "d", "device": "gpu-0", "id": "GPU-1"}]'
    ran = subprocess.run(
        [sys.executable, "-B", "-c", HANGING.replace("OBSERVE", observe)],
        cwd=hooks.FOLDER,
        env={"PATH": "/usr/bin:/bin", "ADJOIN_PHASE": "init", "ADJOIN_DEVICES": devices},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert says in ran.stdout
    assert "failed" not in ran.stdout


def test_no_xid_is_in_the_table_twice(checks: dict[str, Any]) -> None:
    table = sys.modules["gpu_errors"].XIDS
    codes = [code for _, listed in table.values() for code in listed.split()]
    assert len(codes) == len(set(codes))
