"""Writes zeros into a GPU's memory through libcuda and reads them back. Called by other hooks, one GPU a process.

`cuda.py <uuid> <MiB>` takes at most so much of what is free (`all`: everything) and prints JSON: `free` and `zeroed`
in bytes, `wrong` (how many of the words that were read back are not 0). Exit status 0; 3 when there is no libcuda; 4
with `error` when CUDA says no.

Constants and signatures: CUDA Driver API (cuda.h), which maps the plain names of functions to those with _v2.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

LARGEST_CHUNK = 256 << 20
SMALLEST_CHUNK = 2 << 20
"""The driver maps memory in pages of 2 MiB: smaller pieces are not worth asking for."""
WORD = 4
NO_LIBRARY, CUDA_FAILED = 3, 4


class CudaError(Exception):
    """A call of the driver API did not return CUDA_SUCCESS (0)."""


def call(cuda: Any, function: str, *arguments: Any) -> None:
    """Raises CudaError with the name of the call."""
    status = getattr(cuda, function)(*arguments)
    if status != 0:
        raise CudaError(f"{function} returned {status}")


def zero(cuda: Any, limit: int | None) -> dict[str, int]:
    """Fills at most `limit` bytes (None: all that is free) of the only visible GPU with zeros and reads back the first
    and the last word of every chunk, after all were written."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call(cuda, "cuInit", ctypes.c_uint(0))
    call(cuda, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    call(cuda, "cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
    call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    wanted = free.value if limit is None else min(limit, free.value)
    chunks: list[tuple[ctypes.c_uint64, int]] = []
    size, taken = LARGEST_CHUNK, 0
    while size >= SMALLEST_CHUNK and taken + SMALLEST_CHUNK <= wanted:
        pointer = ctypes.c_uint64()
        piece = min(size, wanted - taken)
        if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(piece)) != 0:
            size //= 2
            continue
        chunks.append((pointer, piece))
        taken += piece
    for pointer, piece in chunks:
        call(cuda, "cuMemsetD32_v2", pointer, ctypes.c_uint(0), ctypes.c_size_t(piece // WORD))
    call(cuda, "cuCtxSynchronize")
    wrong = 0
    for pointer, piece in chunks:
        for offset in (0, piece // WORD * WORD - WORD):
            word = ctypes.c_uint(0xFFFFFFFF)
            source = ctypes.c_uint64(pointer.value + offset)
            call(cuda, "cuMemcpyDtoH_v2", ctypes.byref(word), source, ctypes.c_size_t(WORD))
            wrong += word.value != 0
    for pointer, _ in chunks:
        call(cuda, "cuMemFree_v2", pointer)
    call(cuda, "cuCtxDestroy_v2", context)
    return {"free": free.value, "zeroed": taken, "wrong": wrong}


def main(uuid: str, mib: str) -> int:
    """Exit status."""
    # Before libcuda is loaded: then device 0 is the one that is meant, GPU or MIG device, whatever its index.
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(json.dumps({"error": f"no libcuda.so.1: {error}"}))
        return NO_LIBRARY
    try:
        print(json.dumps(zero(cuda, None if mib == "all" else int(mib) << 20)))
    except (CudaError, AttributeError) as error:
        print(json.dumps({"error": str(error)}))
        return CUDA_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
