"""Reading a pickle without running it: which classes and functions it names, what it calls, what it holds.

Works on symbols: a global stays a name, a call stays a record of what would have been called. Nothing is imported.
"""

from __future__ import annotations

import _compat_pickle
import dataclasses
import pickletools
from typing import IO, Any


class MalformedPickleError(ValueError):
    """The bytes are no pickle that the language of pickles allows."""


@dataclasses.dataclass(frozen=True)
class Global:
    """A class or function by ``module.name``, as Python 3 names it."""

    name: str


@dataclasses.dataclass(eq=False)
class Made:
    """An object that the pickle would make: ``call`` (any callable, REDUCE) or ``new`` (``cls.__new__``, NEWOBJ)."""

    how: str
    callee: Any
    args: Any
    state: Any = None


@dataclasses.dataclass(frozen=True)
class Persistent:
    """A reference to something outside the pickle, for torch the storage of a tensor."""

    key: Any


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a pickle says.

    Attributes:
        root: The value, with :class:`Global`, :class:`Made` and :class:`Persistent` in place of the real things.
        globals: Names of all globals, in order of appearance.
        made: Every object that would be made, in order.
        persistent: Every reference to something outside.
    """

    root: Any
    globals: tuple[str, ...]
    made: tuple[Made, ...]
    persistent: tuple[Persistent, ...]


_LITERALS = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
    "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "FLOAT", "BINFLOAT",
})  # fmt: skip
_EMPTY: dict[str, Any] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": list, "EMPTY_TUPLE": tuple}
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


def read_pickle(stream: IO[bytes]) -> Reading:
    """Read one pickle from ``stream`` and leave the stream right behind it.

    Raises:
        MalformedPickleError: The bytes end early, or are no pickle.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            machine.step(opcode.name, argument)
        root = machine.stack.pop()
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise MalformedPickleError(str(error) or type(error).__name__) from error
    return Reading(root, tuple(dict.fromkeys(machine.names)), tuple(machine.made), tuple(machine.persistent))


class _Machine:
    """The stack machine of pickles, on symbols."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.names: list[str] = []
        self.made: list[Made] = []
        self.persistent: list[Persistent] = []

    def step(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        else:
            method = getattr(self, f"_{name.lower()}", None)
            if method is None:
                raise ValueError(f"unknown opcode {name}")
            method(argument)

    def _items(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def _make(self, how: str, callee: Any, args: Any) -> None:
        made = Made(how, callee, args)
        self.made.append(made)
        self.stack.append(made)

    def _name(self, module: str, name: str) -> None:
        # Python 3 writes Python 2's names into pickles of protocol 2 and below; undo that as unpicklers do.
        if (module, name) in _compat_pickle.NAME_MAPPING:
            module, name = _compat_pickle.NAME_MAPPING[(module, name)]
        elif module in _compat_pickle.IMPORT_MAPPING:
            module = _compat_pickle.IMPORT_MAPPING[module]
        self.names.append(f"{module}.{name}")
        self.stack.append(Global(f"{module}.{name}"))

    def _proto(self, _: Any) -> None: ...

    _frame = _stop = _proto

    def _mark(self, _: Any) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def _pop(self, _: Any) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self._items()

    def _pop_mark(self, _: Any) -> None:
        self._items()

    def _dup(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def _tuple(self, _: Any) -> None:
        items = self._items()
        self.stack.append(tuple(items))

    def _list(self, _: Any) -> None:
        items = self._items()
        self.stack.append(items)

    _frozenset = _list

    def _dict(self, _: Any) -> None:
        items = self._items()
        self.stack.append({})
        self._set(items)

    def _tuple1(self, _: Any) -> None:
        self.stack[-1:] = [(self.stack[-1],)]

    def _tuple2(self, _: Any) -> None:
        self.stack[-2:] = [(self.stack[-2], self.stack[-1])]

    def _tuple3(self, _: Any) -> None:
        self.stack[-3:] = [(self.stack[-3], self.stack[-2], self.stack[-1])]

    def _append(self, _: Any) -> None:
        item = self.stack.pop()
        self._extend([item])

    def _appends(self, _: Any) -> None:
        items = self._items()
        self._extend(items)

    _additems = _appends

    def _extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)

    def _setitem(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def _setitems(self, _: Any) -> None:
        items = self._items()
        self._set(items)

    def _set(self, items: list[Any]) -> None:
        target = self.stack[-1]
        pairs = list(zip(items[::2], items[1::2], strict=True))
        if isinstance(target, Made):
            # An OrderedDict or defaultdict: made by a call and filled afterwards.
            target.state = {} if target.state is None else target.state
            target = target.state
        if isinstance(target, dict):
            target.update((k if isinstance(k, (str, int, float, bytes, tuple)) else repr(type(k)), v) for k, v in pairs)

    def _put(self, argument: Any) -> None:
        self.memo[int(argument)] = self.stack[-1]

    _binput = _long_binput = _put

    def _memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _get(self, argument: Any) -> None:
        self.stack.append(self.memo[int(argument)])

    _binget = _long_binget = _get

    def _global(self, argument: Any) -> None:
        self._name(*argument.split(" ", 1))

    def _stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise TypeError("the name of a global is no text")
        self._name(module, name)

    def _reduce(self, _: Any) -> None:
        args, callee = self.stack.pop(), self.stack.pop()
        self._make("call", callee, args)

    def _newobj(self, _: Any) -> None:
        args, callee = self.stack.pop(), self.stack.pop()
        self._make("new", callee, args)

    def _newobj_ex(self, _: Any) -> None:
        keywords, args, callee = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self._make("call", callee, (args, keywords))

    def _inst(self, argument: Any) -> None:
        items = self._items()
        self._name(*argument.split(" ", 1))
        self._make("call", self.stack.pop(), tuple(items))

    def _obj(self, _: Any) -> None:
        callee, *items = self._items()
        self._make("call", callee, tuple(items))

    def _build(self, _: Any) -> None:
        state = self.stack.pop()
        if isinstance(self.stack[-1], Made) and self.stack[-1].state is None:
            self.stack[-1].state = state

    def _persid(self, argument: Any) -> None:
        self.stack.append(Persistent(argument))
        self.persistent.append(self.stack[-1])

    def _binpersid(self, _: Any) -> None:
        self._persid(self.stack.pop())
