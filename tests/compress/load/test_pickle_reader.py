"""Reading pickles without running them."""

from __future__ import annotations

import argparse
import collections
import io
import os
import pickle
import pickletools
from typing import Any

import numpy as np
import pytest

from compress.load.pickle_reader import Global, MalformedPickleError, read_pickle


class Call:
    def __init__(self, function: Any, *args: Any) -> None:
        self.what = (function, args)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_come_back(protocol: int) -> None:
    shared = [1, 2.5]
    value = {"a": shared, "b": (shared, None, True), "c": "ü", "d": b"x", "e": -(1 << 80), "f": {}, 7: ()}
    reading = read_pickle(io.BytesIO(pickle.dumps(value, protocol)))
    if protocol >= 3:
        assert reading.root == value
        assert reading.globals == ()
    else:  # bytes are written as a call of _codecs.encode
        assert reading.globals == ("_codecs.encode",)
        assert {k: v for k, v in reading.root.items() if k != "d"} == {k: v for k, v in value.items() if k != "d"}


@pytest.mark.parametrize("protocol", range(6))
def test_calls_are_recorded_and_not_made(protocol: int, tmp_path: Any) -> None:
    marker = tmp_path / "marker"
    data = pickle.dumps([Call(os.system, f"touch {marker}"), Call(eval, "1")], protocol)
    reading = read_pickle(io.BytesIO(data))
    assert not marker.exists()
    assert set(reading.globals) == {f"{os.system.__module__}.system", "builtins.eval"}
    assert [(m.how, m.callee.name, m.args) for m in reading.made] == [
        ("call", f"{os.system.__module__}.system", (f"touch {marker}",)),
        ("call", "builtins.eval", ("1",)),
    ]


@pytest.mark.parametrize("protocol", [2, 4])
def test_objects_and_their_state(protocol: int) -> None:
    default = collections.defaultdict(list, {"k": [1]})
    reading = read_pickle(io.BytesIO(pickle.dumps((argparse.Namespace(lr=0.1), default, np.float64(3)), protocol)))
    space, filled, _ = reading.root
    assert space.callee == Global("argparse.Namespace")
    assert space.state == {"lr": 0.1}
    assert filled.callee == Global("collections.defaultdict")
    assert filled.state == {"k": [1]}
    assert "numpy.dtype" in reading.globals


def test_hand_made_opcodes() -> None:
    inst = b"(S'x'\nios\nsystem\n."
    assert [m.callee.name for m in read_pickle(io.BytesIO(inst)).made] == ["os.system"]
    obj = b"(cos\nsystem\nS'x'\no."
    assert [(m.callee.name, m.args) for m in read_pickle(io.BytesIO(obj)).made] == [("os.system", ("x",))]
    stacked = b"\x80\x04\x8c\x02os\x8c\x06system\x93."
    assert read_pickle(io.BytesIO(stacked)).globals == ("os.system",)


def test_each_pickle_of_a_stream_is_read_by_itself() -> None:
    stream = io.BytesIO(pickle.dumps(1) + pickle.dumps([2]))
    assert read_pickle(stream).root == 1
    assert read_pickle(stream).root == [2]


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"<html>", b"\x80\x02.", b"\x80\x02R.", b"h\x05.", b"\x80\x02}q", b"\x82\x01."]
)
def test_broken_pickles(data: bytes) -> None:
    with pytest.raises(MalformedPickleError):
        read_pickle(io.BytesIO(data))


def test_every_opcode_is_known() -> None:
    from compress.load.pickle_reader import _CONSTANTS, _EMPTY, _LITERALS, _Machine

    known = _LITERALS | set(_CONSTANTS) | set(_EMPTY)
    unknown = {
        o.name for o in pickletools.opcodes if o.name not in known and not hasattr(_Machine, f"_{o.name.lower()}")
    }
    # Extension codes and out-of-band buffers, which torch never writes.
    assert unknown == {"EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"}
