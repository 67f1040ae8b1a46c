"""What machine and software a run was made on."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime-gpu", "onnxruntime", "openvino", "numpy")
_FEATURES = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "amx_int8",
    "amx_bf16",
    "asimddp",
    "i8mm",
    "bf16",
)


def environment(threads: int) -> dict[str, Any]:
    """Return machine, CPU (with the features that decide INT8 and BF16 speed), memory, threads and versions."""
    import psutil

    import compress
    from compress.passes.int8.cpu import cpu_flags

    flags = cpu_flags()
    return {
        "compress": compress.__version__,
        "python": sys.version.split()[0],
        "system": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cpu_features": [f for f in _FEATURES if f in flags],
        "cpus_of_machine": psutil.cpu_count() or 0,
        "threads": threads,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "packages": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that decide results, those that are installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
