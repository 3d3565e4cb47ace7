"""Lists of pods and nodes for the benchmark of shared cards: what is read, and what is refused with line and value."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.benchmarks.openb.trace import Broken, Machine, Pod, read_machines, read_pods

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "list.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(PODS + "a,100,200,1,500\n", Pod(100, 200, 1, 500, frozenset()), id="no models"),
        pytest.param(PODS + "a,,,1,\n", Pod(0, 0, 1, 1000, frozenset()), id="empty values, a whole card"),
        pytest.param(
            PODS + "a,1.0,2e1,2.0,1000.0\n", Pod(1, 20, 2, 1000, frozenset()), id="whole numbers with a point"
        ),
        pytest.param(
            "\ufeffcolour,gpu_milli,num_gpu, memory_mib,cpu_milli,gpu_spec,name\nred,7,1,8,9, X | Y |,a\n\n",
            Pod(9, 8, 1, 7, frozenset({"X", "Y"})),
            id="another order of columns, one more, a byte order mark, a blank line",
        ),
    ],
)
def test_a_pod_is_read(tmp_path: Path, text: str, expected: Pod) -> None:
    """Whatever else stands in the file."""
    assert read_pods(_file(tmp_path, text)) == [expected]


def test_pods_are_sorted_by_name(tmp_path: Path) -> None:
    """The order of the file does not matter."""
    pods = read_pods(_file(tmp_path, PODS + "b,1,0,1,500\na,2,0,0,0\n"))
    assert [pod.cpu_milli for pod in pods] == [2, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("", "line 1: no column name, cpu_milli", id="nothing"),
        pytest.param("name,cpu_milli,memory_mib,num_gpu\na,1,1,1\n", "line 1: no column gpu_milli", id="a column less"),
        pytest.param(PODS + "a,1,1,1,500\nb,x,1,1,500\n", "line 3: cpu_milli 'x' is no whole number", id="a word"),
        pytest.param(PODS + "a,1.5,1,1,500\n", "line 2: cpu_milli '1.5'", id="a fraction"),
        pytest.param(PODS + "a,-1,1,1,500\n", "line 2: cpu_milli '-1'", id="less than nothing"),
        pytest.param(PODS + "a,nan,1,1,500\n", "line 2: cpu_milli 'nan'", id="not a number"),
        pytest.param(PODS + "a,1,inf,1,500\n", "line 2: memory_mib 'inf'", id="more than anything"),
        pytest.param(PODS + "a,1,1,1,1001\n", "line 2: gpu_milli '1001'", id="more than a card of one"),
        pytest.param(PODS + "a,1,1,1,0\n", "line 2: gpu_milli '0' asks for nothing", id="nothing of a card"),
        pytest.param(PODS + "a,1,1,2,500\n", "line 2: gpu_milli '500' asks for parts of 2 GPUs", id="several parts"),
        pytest.param(PODS + "a,1,1,0,500\n", "line 2: gpu_milli '500' asks for a part of no GPU", id="a part of none"),
        pytest.param(PODS + "a,1,1\n", "line 2: 3 values under 5 columns", id="a short line"),
        pytest.param(PODS + "a,1,1,1,500,,\n", "line 2: 7 values under 5 columns", id="a long line"),
        pytest.param(PODS + "a,1,1,0,0\n", "no pod asks for a GPU", id="no pod for a card"),
        pytest.param(PODS, "no pod asks for a GPU", id="no pods"),
    ],
)
def test_a_broken_list_of_pods_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """With the line and what it says."""
    with pytest.raises(Broken) as refused:
        read_pods(_file(tmp_path, text))
    assert told in str(refused.value)


def test_nodes_without_cards_are_left_out_and_a_model_may_be_unknown(tmp_path: Path) -> None:
    """As in the published runs."""
    machines = read_machines(_file(tmp_path, NODES + "n1,64000,1024,2,\nn2,64000,1024,0,\n"))
    assert machines == [Machine("n1", 64000, 1024, 2, "")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(NODES + "n1,1,1,1,A\nn1,1,1,1,A\n", "line 3: sn 'n1' is the name of an earlier node", id="twice"),
        pytest.param(NODES + ",1,1,1,A\n", "line 2: sn '' is empty", id="no name"),
        pytest.param(NODES + "n1,1,1,many,A\n", "line 2: gpu 'many'", id="a word"),
        pytest.param(NODES + "n1,1,1,0,\n", "no node has a card", id="no cards"),
    ],
)
def test_a_broken_list_of_nodes_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """Likewise."""
    with pytest.raises(Broken) as refused:
        read_machines(_file(tmp_path, text))
    assert told in str(refused.value)


def test_what_is_no_text_or_no_file_is_refused(tmp_path: Path) -> None:
    """With its path."""
    path = tmp_path / "list.csv"
    with pytest.raises(Broken, match=r"list\.csv"):
        read_pods(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Broken, match=r"list\.csv"):
        read_pods(path)
