"""What an exported program (.pt2) may hold: torch.export.load runs code from a crafted one.

Members are unpickled without restriction, and shapes are handed to sympy, which evaluates them as Python. Compiled
libraries are opened. A node's target is looked up under ``torch`` (``torch.os.system``), and names go into generated
source; torch stops some of that later, by accident or design. All is checked here, before torch sees the file.
"""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from compress.load.archives import Archive
from compress.load.pickle_reader import MalformedPickleError, read_pickle

_TARGET = re.compile(
    r"torch\.ops\.(?!higher_order\.)[a-z]\w*\.(?!__)\w+(\.(?!__)\w+)?"
    r"|torch\.ops\.higher_order\.(cond|while_loop|scan|map_impl|associative_scan|wrap_with_set_grad_enabled|"
    r"wrap_with_autocast|tag_activation_checkpoint|invoke_subgraph|flex_attention|out_dtype|auto_functionalized(_v2)?)"
    r"|torch\.sym_(not|float|int|max|min|ite|sqrt|sum)"
    r"|torch\._sym_\w+"
    r"|_operator\.(add|sub|mul|truediv|floordiv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|not_|getitem|lshift|rshift)"
    r"|math\.\w+"
)
_FILE_OPS = re.compile(r"torch\.ops\.\w+\.(from_file|save|load|load_tensor)\b")
_NAME = re.compile(r"[\w.:/+-]*")
_FUNCTIONS = frozenset({
    "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow",
    "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And",
    "Or", "Not", "Max", "Min", "Abs", "floor", "ceiling",
    "sqrt", "log", "FloorDiv", "ModularIndexing", "Where", "PythonMod", "Mod",
    "CleanDiv", "CeilToInt", "FloorToInt", "CeilDiv", "LShift", "RShift", "PowByNatural",
    "FloatPow", "FloatTrueDiv", "IntTrueDiv", "IsNonOverlappingAndDenseIndicator", "TruncToFloat", "TruncToInt",
    "RoundToInt",
    "RoundDecimal", "ToFloat", "Identity",
})  # fmt: skip
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Name, ast.Constant, ast.keyword,
    ast.Load, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_FREE_TEXT = frozenset({"metadata", "as_string", "as_strings", "torch_version", "guards_code"})
"""Keys whose strings never become code: guards are not compiled, since the loader asks for no checks of them."""


def unsafe_parts(archive: Archive) -> list[str]:
    """Return, in words, everything in an exported program that could run code; empty for an honest one."""
    found: list[str] = []
    for name in archive.names:
        if name.startswith(("data/aotinductor/", "data/executorch/")):
            found.append(f"compiled code ({name})")
        elif name.endswith(".pt"):
            found += _pickled(name, archive.read(name))
        elif name.endswith(".json"):
            found += _described(archive, name)
    return list(dict.fromkeys(found))


def _described(archive: Archive, name: str) -> list[str]:
    try:
        content = json.loads(archive.read(name))
    except (ValueError, RecursionError):
        return [f"{name}, which is no JSON"] if name.startswith(("models/", "data/")) else []
    if name.startswith("models/"):
        return list(_in_program(content))
    if not name.startswith("data/"):
        return []
    found = []
    for payload in (content.get("config") or {}).values():
        member = str(payload.get("path_name", ""))
        path = f"{name.rpartition('/')[0]}/{member}"
        if member.startswith(("custom_obj", "opaque_obj")):
            found.append(f"a pickled object ({path})")
        elif payload.get("use_pickle"):
            found += _pickled(path, archive.read(path)) if path in archive.names else [f"{path}, which isn't there"]
    return found


def _pickled(name: str, content: bytes) -> list[str]:
    """Judge a member that torch unpickles: only what torch's restricted unpickler lets through by itself."""
    import torch

    from compress.load.safe import judge

    if not content:
        return []
    try:
        data = torch._C.PyTorchFileReader(io.BytesIO(content)).get_record("data.pkl")
        judged = judge(read_pickle(io.BytesIO(data)))
    except (RuntimeError, MalformedPickleError):
        return [f"{name}, which is no file of torch.save"]
    # torch unpickles these without the list's additions, or falls back to full unpickling: nothing extra may be there.
    return [f"{what} (in {name})" for what in (*judged.refused, *judged.allowed)]


def _in_program(value: Any, key: str = "") -> Iterator[str]:
    """Walk a program's description; ``key`` is where ``value`` stands."""
    if key in _FREE_TEXT:
        return
    if isinstance(value, dict):
        if value.get("custom_obj_values"):
            yield "script objects"
        for name, item in value.items():
            if not _NAME.fullmatch(str(name)):
                yield f"the name {str(name)[:60]!r}"
            yield from _in_program(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _in_program(item, key)
    elif isinstance(value, str):
        yield from _in_string(value, key)


def _in_string(text: str, key: str) -> Iterator[str]:
    if key in ("target", "as_operator") and ("." in text or text.startswith("#")):
        # Buffers that a program changes are targets too, by their dotted names; those are never looked up under torch.
        looked_up = text.startswith(("torch", "_operator", "math", "#"))
        if looked_up and (not _TARGET.fullmatch(text) or _FILE_OPS.match(text)):
            yield f"the operator {text[:60]}"
        elif not _NAME.fullmatch(text):
            yield f"the name {text[:60]!r}"
    elif key == "expr_str":
        if not _is_arithmetic(text):
            yield f"the shape {text[:60]!r}"
    elif key in ("in_spec", "out_spec"):
        # These two contexts make Python import a module of the file's choice.
        if "__enum__" in text or "default_factory" in text or "defaultdict" in text:
            yield "an argument of a type that has to be imported"
    elif not _NAME.fullmatch(text):
        yield f"the name {text[:60]!r}"


def _is_arithmetic(text: str) -> bool:
    """Whether text is a formula of symbols, numbers and sympy's arithmetic; strings only as names of symbols."""
    if re.fullmatch(r"-?(int_)?(oo|inf)", text):
        return True
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    named: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS):
                return False
            if node.func.id == "Symbol" and node.args:
                named.add(id(node.args[0]))
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            return False
        if isinstance(node, ast.Name) and not (
            node.id in _FUNCTIONS or re.fullmatch(r"[a-z]{1,3}\d+|oo|int_oo", node.id)
        ):
            return False
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in named or not re.fullmatch(r"[A-Za-z]\w*", node.value):
                return False
        elif isinstance(node, ast.Constant) and not isinstance(node.value, (bool, int, float)):
            return False
    return True
