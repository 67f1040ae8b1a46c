"""Reading ``--input``: what a model takes, as a user writes it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from compress.artifact import BATCH, Dim
from compress.errors import UsageError

DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
"""Element types an input may have, by NumPy's names."""

_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_SYMBOL = re.compile(r"[A-Za-z_]\w*")
_HINT = (
    "Write SHAPE, NAME:SHAPE, DTYPE:SHAPE or NAME:DTYPE:SHAPE, such as 1x3x32x32 or ids:int64:1xseq; "
    "ARG.KEY:DTYPE:SHAPE is one value of a dict, ARG.0:DTYPE:SHAPE one of a tuple."
)


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """One input as the user described it.

    Attributes:
        name: Name of a parameter of ``forward``; ``argument.key`` for a value inside a dict or tuple; empty for an
            input that binds by its position.
        dtype: NumPy's name of the element type.
        shape: One entry an axis; the first is always ``"batch"``, a name stands for an axis whose size may vary.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]


def parse_input(text: str) -> InputSpec:
    """Read one input spec.

    Axes are joined with ``x``; where a name holds an ``x`` itself, with commas (``1,max_len``). The first axis is the
    batch axis, whatever is written there.

    Raises:
        UsageError: The text is none; the message says which part and shows an example.
    """
    parts = text.strip().split(":")
    name, dtype = "", "float32"
    if len(parts) == 3:
        name, dtype = parts[0], parts[1]
    elif len(parts) == 2:
        name, dtype = ("", parts[0]) if parts[0] in DTYPES else (parts[0], dtype)
    elif len(parts) > 3:
        raise UsageError(f"--input '{text}' has too many colons.", _HINT)
    if dtype not in DTYPES:
        raise UsageError(f"--input '{text}': '{dtype}' is no element type ({', '.join(DTYPES)}).", _HINT)
    if len(parts) > 1 and not name and parts[0] not in DTYPES:
        raise UsageError(f"--input '{text}': the name is empty.", _HINT)
    if name and not _NAME.fullmatch(name):
        raise UsageError(f"--input '{text}': '{name}' cannot be the name of an argument.", _HINT)
    dims = tuple(_dim(part, text) for part in _axes(parts[-1], text))
    return InputSpec(name, dtype, (BATCH, *dims[1:]))


def parse_inputs(texts: Iterable[str]) -> tuple[InputSpec, ...]:
    """Read several input specs, in order.

    Raises:
        UsageError: One is wrong, two have the same name, or one without a name follows one with a name.
    """
    specs = tuple(map(parse_input, texts))
    names = [s.name for s in specs if s.name]
    twice = [n for n in dict.fromkeys(names) if names.count(n) > 1]
    if twice:
        raise UsageError(f"--input: two inputs are called '{twice[0]}'.")
    first_named = next((i for i, s in enumerate(specs) if s.name), len(specs))
    if any(not s.name for s in specs[first_named:]):
        raise UsageError("--input: inputs without a name must come before those with one.", _HINT)
    return specs


def _axes(shape: str, text: str) -> list[str]:
    if "," in shape:
        return [part.strip() for part in shape.split(",")]
    if re.search(r"[A-Za-z_]x[A-Za-z_]", shape):
        raise UsageError(
            f"--input '{text}': which 'x' in '{shape}' parts two axes?", "Write commas, as in 1,max_len,64."
        )
    # An x between two letters was refused above; one at the end of a word belongs to the word (1xmax).
    return re.split(r"(?<=\d)x|x(?=\d)", shape)


def _dim(part: str, text: str) -> Dim:
    if part.isascii() and part.isdigit() and int(part) > 0:
        return int(part)
    if _SYMBOL.fullmatch(part):
        return part
    raise UsageError(f"--input '{text}': '{part}' is no size (1, 2, …) and no name of an axis.", _HINT)
