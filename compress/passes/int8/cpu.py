"""What the CPU's INT8 arithmetic can do, as far as it decides how weights are quantized."""

from __future__ import annotations

import platform
from pathlib import Path

_VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})


def cpu_flags() -> frozenset[str]:
    """Return the CPU's feature flags as Linux names them; empty where they cannot be read."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return frozenset()
    for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def needs_reduced_range(flags: frozenset[str] | None = None) -> bool:
    """Whether 8-bit weights may saturate the 16-bit sums of this CPU's kernels (x86 without VNNI).

    With uint8 activations, AVX2 and AVX512 without VNNI add pairs of products in 16 bits, which overflow; 7-bit weights
    cannot. ARM and VNNI kernels sum in 32 bits.
    """
    known = cpu_flags() if flags is None else flags
    return platform.machine() in ("x86_64", "AMD64") and bool(known) and not known & _VNNI
