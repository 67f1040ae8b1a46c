"""Undoing what OpenVINO does to the stack that signals are handled on."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator


class _Stack(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextlib.contextmanager
def signal_stack_kept() -> Iterator[None]:
    """Give this thread back, at the end of the block, the signal stack it had before.

    OpenVINO's CPU plugin sets one of its own while it compiles (2026.4, on CPUs with AVX-512), and frees its memory
    with the plugin without unsetting it. Python handles signals on that stack, so the next Ctrl-C ends the process with
    a segmentation fault.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    sigaltstack = ctypes.CDLL(None).sigaltstack
    before = _Stack()
    sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        sigaltstack(ctypes.byref(before), None)
