"""Texts that tell a machine's wiring → `Matrix`, whichever program wrote them.

In comes the text of a ConfigMap, out goes a `Matrix`, or a `MatrixError` that names the line. The text itself says what
it is:

- XML whose outermost element is `<topology>`: hwloc, as `lstopo --of xml` writes it (`hwloc`);
- XML whose outermost element is `<system>`: NCCL or RCCL, as `NCCL_TOPO_DUMP_FILE` names it (`nccl`);
- tables headed "… between two GPUs": `rocm-smi --showtopo` (`rocm`);
- everything else: `nvidia-smi topo -m` (`matrix`).

Nothing is fetched, no text is run, and the work is bounded by the length of the text and `tree.MOST_ROWS`.
"""

from __future__ import annotations

from adjoin_allocator.formats import hwloc, nccl, rocm
from adjoin_allocator.formats.elements import is_xml, parse_xml
from adjoin_allocator.matrix import Matrix, MatrixError, parse_matrix

__all__ = ["read_topology"]


def read_topology(text: str) -> Matrix:
    """Reads a machine's topology in any of the formats above.

    Raises:
        MatrixError: With the line number and what is wrong there.
    """
    if is_xml(text):
        root = parse_xml(text)
        if root.tag == hwloc.ROOT:
            return hwloc.read(root)
        if root.tag == nccl.ROOT:
            return nccl.read(root)
        raise MatrixError(
            root.line,
            f"XML with <{root.tag}> outermost is no topology that is known; <{hwloc.ROOT}> (hwloc) and <{nccl.ROOT}> "
            "(NCCL) are",
        )
    if rocm.is_showtopo(text):
        return rocm.read(text)
    return parse_matrix(text)
