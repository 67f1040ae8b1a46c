"""The door every pickle goes through: what it may name, what it may call, and what is refused before anything runs.

Two locks, one behind the other. The pickle is first read as symbols (:mod:`compress.load.pickle_reader`) and refused
where it names anything off the list, or calls what may only be referred to. Then torch's own restricted unpickler
(``weights_only=True``) loads it, with that same list and no more.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import functools
import importlib
import importlib.util
import inspect
import io
import pathlib
import pickle
import warnings
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch

from compress.errors import ModelError
from compress.load.code import Architecture, is_users_module
from compress.load.kinds import Kind, damaged, kind_of
from compress.load.pickle_reader import Global, Made, MalformedPickleError, Persistent, Reading, read_pickle

_LIBRARIES = ("torch.nn.modules.", "torch.nn.parallel.", "torchvision.", "timm.")
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_ACTIVATIONS = frozenset({
    "relu", "relu6", "gelu", "silu", "elu", "selu", "celu",
    "glu", "leaky_relu", "mish", "hardswish", "hardsigmoid", "hardtanh", "softplus",
    "softsign", "tanh", "sigmoid", "softmax", "log_softmax", "logsigmoid", "tanhshrink",
})  # fmt: skip


class Use(enum.Enum):
    """What a pickle may do with a global of the list."""

    REFER = "refer"
    NEW = "make"  # cls.__new__ and filling its attributes, as honest pickles of modules do
    CALL = "call"


@dataclasses.dataclass(frozen=True)
class Allowed:
    """An entry of the list: what a name stands for, and what may be done with it."""

    thing: Any
    use: Use


@dataclasses.dataclass(frozen=True)
class Examination:
    """What the first lock found.

    Attributes:
        reading: The pickle as symbols.
        refused: Names that are off the list, and calls that aren't allowed, each in words.
        allowed: Entries of the list that the pickle uses, by name.
    """

    reading: Reading
    refused: tuple[str, ...]
    allowed: dict[str, Allowed]


def examine(path: Path, code: Architecture | None = None) -> Examination:
    """Read the pickle inside a file of ``torch.save`` without running any of it.

    Raises:
        ModelError: The file is damaged, or a pickle that torch.save didn't write.
    """
    try:
        if kind_of(path) is Kind.LEGACY_PICKLE:
            with path.open("rb") as file:
                reading = _read_legacy(path, file)
        else:
            reading = read_pickle(io.BytesIO(torch._C.PyTorchFileReader(str(path)).get_record("data.pkl")))
    except (MalformedPickleError, RuntimeError) as error:
        raise damaged(path, "its pickle ends early or is broken") from error
    return judge(reading, code)


def judge(reading: Reading, code: Architecture | None = None) -> Examination:
    """Hold a pickle against the list."""
    torchs_own = set(reading.globals) - _unknown_to_torch(reading.globals)
    allowed: dict[str, Allowed] = {}
    refused: list[str] = []
    for name in reading.globals:
        if name in torchs_own:
            continue
        entry = _look_up(name, code)
        if entry is None:
            refused.append(name)
        else:
            allowed[name] = entry
    for made in reading.made:
        name = _callee(made)
        if name in torchs_own or name in refused:
            continue
        if name not in allowed:
            refused.append("a call of something it made itself")
        elif allowed[name].thing is functools.partial and not _wraps_a_module(made, allowed):
            refused.append(name)
        elif made.how == "call" and allowed[name].use is not Use.CALL:
            refused.append(f"{name} (called with arguments)")
    return Examination(reading, tuple(dict.fromkeys(refused)), allowed)


def load_pickle(path: Path, code: Architecture | None, trust: bool) -> Any:
    """Load a file of ``torch.save`` to the CPU.

    Args:
        path: The file.
        code: Code whose classes the pickle may use.
        trust: Whether the user allowed full unpickling (``--trust-pickle``), which can run anything.

    Raises:
        ModelError: The file is damaged or refused; the message names every refused type. Nothing of it has run then.
    """
    if trust:
        try:
            return torch.load(path, map_location="cpu", weights_only=False, pickle_module=_trusting(code))
        except Exception as error:
            raise ModelError(f"{path} cannot be unpickled: {type(error).__name__}: {error}.") from error
    found = examine(path, code)
    if found.refused:
        raise refusal(path, found.refused, code)
    if any(_persistent_kind(p.key) != "storage" for p in found.reading.persistent):
        raise ModelError(
            f"{path} is a whole module in the format that torch.save wrote before version 1.6, which cannot be loaded "
            "safely.",
            "Save it again with a current torch, or pass --trust-pickle if you trust whoever made it.",
        )
    entries: list[Any] = [(a.thing, name) for name, a in found.allowed.items()]
    if any(name.startswith("numpy") for name in found.allowed):
        entries += [c for c in vars(np.dtypes).values() if inspect.isclass(c)]
    try:
        with torch.serialization.safe_globals(entries), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Detected pickle protocol")  # it fails next, and says so
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = _reason(error)
        raise ModelError(
            f"{path} cannot be loaded safely: {reason}.",
            "Save it again with torch.save's own settings, or pass --trust-pickle if you trust whoever made it.",
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise damaged(path, _first_line(error)) from error


def refusal(path: Path, refused: tuple[str, ...], code: Architecture | None = None) -> ModelError:
    """Return the error for a file that names what isn't allowed; for a missing class of the user's, how to go on."""
    missing = [name for name in refused if _is_users(name)]
    others = [name for name in refused if name not in missing]
    if not missing:
        return ModelError(
            f"{path} is refused and nothing of it was run: its pickle names {', '.join(others)}, which safe loading "
            "doesn't allow.",
            "Ask for its state_dict or a safetensors file; only if you trust whoever made it, pass --trust-pickle.",
        )
    module = missing[0].rpartition(".")[0]
    where = "the script that saved it (__main__)" if module == "__main__" else f"module {module}"
    also = f"; its pickle also names {', '.join(others)}, which safe loading doesn't allow" if others else ""
    names = ", ".join(name.rpartition(".")[2] for name in missing)
    if code is None:
        file = "FILE.py" if module == "__main__" else f"{module.rpartition('.')[2]}.py"
        hint = f"Name the file that defines it: --code {file}:{missing[0].rpartition('.')[2]}"
    else:
        hint = f"{code.spec.text} doesn't define it: name the file that does with --code"
    return ModelError(
        f"{path} refers to class {names} of {where} ({', '.join(missing)}), whose code isn't in the file{also}.",
        f"{hint}; an exported program (.pt2) needs no code; --trust-pickle, only if you trust whoever made it, imports "
        "what the file names.",
    )


def _look_up(name: str, code: Architecture | None) -> Allowed | None:
    if name in _PLAIN:
        return _PLAIN[name]
    if name.startswith(_LIBRARIES):
        return _from_library(name)
    module, _, member = name.rpartition(".")
    if member in _ACTIVATIONS and module in ("torch.nn.functional", "torch._C._nn"):
        found = getattr(torch.nn.functional, member, None)
        return Allowed(found, Use.REFER) if found is not None else None
    found = code.find(name) if code else None
    if found is None:
        return None
    if not inspect.isclass(found):
        return Allowed(found, Use.REFER)
    return Allowed(found, Use.CALL if issubclass(found, enum.Enum) else Use.NEW)


def _from_library(name: str) -> Allowed | None:
    """Allow real modules (and enums they hold) of torch.nn, torchvision and timm, looked up where they are defined."""
    module, _, member = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), member, None)
    except (ImportError, ValueError, RuntimeError, AttributeError, OSError):  # it may need what isn't installed
        return None
    if not inspect.isclass(found) or found.__module__ != module:
        return None
    if issubclass(found, torch.nn.Module) and not issubclass(found, (torch.jit.ScriptModule, torch.fx.GraphModule)):
        return Allowed(found, Use.NEW)
    return Allowed(found, Use.CALL) if issubclass(found, enum.Enum) else None


def _empty_dict(*_: Any) -> dict[Any, Any]:
    """Stand in for ``defaultdict(factory)``: torch's unpickler fills plain dicts alone."""
    return {}


def _plain() -> dict[str, Allowed]:
    multiarray = importlib.import_module("numpy._core.multiarray" if hasattr(np, "_core") else "numpy.core.multiarray")
    table: dict[str, Allowed] = {
        "collections.defaultdict": Allowed(_empty_dict, Use.CALL),
        "argparse.Namespace": Allowed(argparse.Namespace, Use.NEW),
        "functools.partial": Allowed(functools.partial, Use.CALL),
        "numpy.dtype": Allowed(np.dtype, Use.CALL),
        "numpy.ndarray": Allowed(np.ndarray, Use.REFER),
        "builtins.frozenset": Allowed(frozenset, Use.CALL),
        "builtins.range": Allowed(range, Use.CALL),
        "builtins.slice": Allowed(slice, Use.CALL),
    }
    table |= {f"builtins.{t.__name__}": Allowed(t, Use.REFER) for t in (int, float, bool, str, list, dict, tuple)}
    for place in ("numpy._core.multiarray", "numpy.core.multiarray"):
        table[f"{place}.scalar"] = Allowed(multiarray.scalar, Use.CALL)
        table[f"{place}._reconstruct"] = Allowed(multiarray._reconstruct, Use.CALL)
    # Paths become pure ones, which name a place on any system and cannot touch it.
    for place in ("pathlib", "pathlib._local"):
        for name in ("PosixPath", "PurePosixPath"):
            table[f"{place}.{name}"] = Allowed(pathlib.PurePosixPath, Use.CALL)
        for name in ("WindowsPath", "PureWindowsPath"):
            table[f"{place}.{name}"] = Allowed(pathlib.PureWindowsPath, Use.CALL)
    scalars = {c for c in vars(np).values() if inspect.isclass(c) and issubclass(c, np.generic)}
    return table | {f"numpy.{c.__name__}": Allowed(c, Use.REFER) for c in scalars}


_PLAIN = _plain()


def _wraps_a_module(made: Made, allowed: dict[str, Allowed]) -> bool:
    first = made.args[0] if isinstance(made.args, tuple) and made.args else None
    state = made.state[0] if isinstance(made.state, tuple) and made.state else first
    return all(
        isinstance(f, Global) and f.name in allowed and inspect.isclass(allowed[f.name].thing)
        and issubclass(allowed[f.name].thing, torch.nn.Module)
        for f in (first, state)
    )  # fmt: skip


def _callee(made: Made) -> str:
    """Return the name of what would be called; empty where that isn't a global."""
    callee = made.callee
    # The old format keeps classes of modules together with their source text, as references to something outside.
    if isinstance(callee, Persistent) and _persistent_kind(callee.key) == "module" and len(callee.key) > 1:
        callee = callee.key[1]
    return callee.name if isinstance(callee, Global) else ""


def _unknown_to_torch(names: tuple[str, ...]) -> set[str]:
    """Return the names that torch's restricted unpickler doesn't know by itself, by asking torch."""
    plain = [n for n in names if all(part.isidentifier() for part in n.split(".")) and "." in n]
    calls = b"".join(b"c%b\n%b\n" % (m.encode(), q.encode()) for m, _, q in (n.rpartition(".") for n in plain))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("names/data.pkl", b"\x80\x02" + calls + b".")
        archive.writestr("names/version", b"3\n")
    buffer.seek(0)
    return set(torch.serialization.get_unsafe_globals_in_checkpoint(buffer)) | (set(names) - set(plain))


def _read_legacy(path: Path, file: io.BufferedReader) -> Reading:
    """Read the third pickle of the old format: magic number, protocol, system and then the object."""
    first = read_pickle(file)
    if first.root != _LEGACY_MAGIC:
        named = f" It names {', '.join(first.globals)}; nothing of it was run." if first.globals else ""
        raise ModelError(
            f"{path} is a plain pickle, not a file of torch.save.{named}", "Save the model with torch.save."
        )
    read_pickle(file)
    read_pickle(file)
    return read_pickle(file)


def _persistent_kind(key: Any) -> Any:
    return key[0] if isinstance(key, tuple) and key else key


def _is_users(name: str) -> bool:
    """Whether a name belongs to code that isn't installed here."""
    module, _, member = name.rpartition(".")
    root = module.partition(".")[0]
    if " " in name or not member.isidentifier() or not root:
        return False
    if root == "__main__":
        return True
    if is_users_module(root):
        return True
    try:
        return importlib.util.find_spec(root) is None
    except (ValueError, ImportError):
        return True


def _trusting(code: Architecture | None) -> ModuleType:
    """Return what torch.load takes as ``pickle_module``: full unpickling that finds the user's classes."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            found = code.find(f"{module}.{name}") if code else None
            return super().find_class(module, name) if found is None else found

    def load(file: Any, **settings: Any) -> Any:
        return Unpickler(file, **settings).load()

    shim = SimpleNamespace(**{k: v for k, v in vars(pickle).items() if not k.startswith("__")})
    shim.Unpickler, shim.load, shim.__name__ = Unpickler, load, "pickle"
    return shim  # type: ignore[return-value]


def _reason(error: Exception) -> str:
    text = str(error)
    marked = text.partition("WeightsUnpickler error:")[2] or text
    return marked.strip().partition("\n")[0].rstrip(". ") or "torch's restricted unpickler refused it"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")[:160] or type(error).__name__


__all__ = ["Allowed", "Examination", "Use", "examine", "judge", "load_pickle", "refusal"]
