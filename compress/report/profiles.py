"""Two profiles of one network side by side: what each layer took before and after, and the conversions beside it."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from compress.report.numbers import clean
from compress.results import OpTime, Profile

Kind = Literal["compute", "conversion", "other"]

_NAMED = 3
"""Layers of a row that are named; the others are counted."""


@dataclasses.dataclass(frozen=True)
class Part:
    """What a row holds of one of the profiles.

    Attributes:
        ops: Operators that aren't conversions.
        conversions: Conversions that stand beside them.
        conversion_ms: The row's share of their time: what stands between two rows counts half in each.
    """

    ops: tuple[OpTime, ...] = ()
    conversions: tuple[OpTime, ...] = ()
    conversion_ms: float = 0.0

    @property
    def ms(self) -> float:
        """Time of the operators, without conversions."""
        return sum(o.ms for o in self.ops)

    @property
    def all_ms(self) -> float:
        """Time of the operators and of the row's share of the conversions."""
        return self.ms + self.conversion_ms

    @property
    def types(self) -> str:
        """Types of the operators, with their number where there are several of one."""
        return _types(self.ops)

    @property
    def conversion_types(self) -> str:
        """Types of the conversions beside them, likewise."""
        return _types(self.conversions)

    @property
    def precisions(self) -> tuple[str, ...]:
        """What the operators really compute in, each once."""
        return tuple(dict.fromkeys(clean(o.precision) or "unknown" for o in self.ops))


@dataclasses.dataclass(frozen=True)
class Row:
    """Layers that were executed together in either profile.

    Attributes:
        layers: Names of the model's own nodes; empty where several operators without a counterpart were put together.
    """

    layers: tuple[str, ...]
    before: Part
    after: Part

    @property
    def loss(self) -> float:
        """Milliseconds that the operators take more than before, without conversions."""
        return self.after.ms - self.before.ms

    @property
    def title(self) -> str:
        """What to call the row."""
        ops = self.before.ops + self.after.ops
        if self.layers:
            more = len(self.layers) - _NAMED
            shown = " + ".join(clean(n) for n in self.layers[:_NAMED])
            return f"{shown} and {more} more" if more > 0 else shown
        if len(ops) == 1:
            return clean(ops[0].name)
        if self.before.ops and self.after.ops:
            return f"other {clean(ops[0].op)}"
        return _types(ops) if ops else "conversions beside no known layer"


def rows(before: Profile, after: Profile) -> list[Row]:
    """Return what both profiles spent, by layers; the longest after first.

    Operators belong together where they name a common layer, directly or through others, so that a fused operator meets
    all that it was made of. Those that have no counterpart in the other profile are put together by their type.
    The rows add up to the operators of each profile: each operator and each conversion counts once.
    """
    sides = tuple([o for o in p.ops if o.kind != "conversion"] for p in (before, after))
    groups = _groups(*sides)
    owners: defaultdict[str, set[int]] = defaultdict(set)
    for number, group in enumerate(groups):
        for op in (*group[0], *group[1]):
            for layer in op.layers:
                owners[layer].add(number)
    old, new = (_beside(p, owners) for p in (before, after))

    def row(number: int, group: Group) -> Row:
        first, second = (Part(tuple(ops), *side.get(number, ())) for ops, side in zip(group, (old, new), strict=True))
        return Row(_layers(*group), first, second)

    found = [row(number, group) for number, group in enumerate(groups)]
    if -1 in old or -1 in new:
        found.append(row(-1, ([], [])))
    return sorted(found, key=lambda r: (-r.after.all_ms, -r.before.all_ms))


def slower(found: Sequence[Row]) -> list[tuple[Row, float]]:
    """Return the rows whose own operators take longer than before and by how many milliseconds, largest loss first.

    What has no counterpart before may only have another name there: it counts as lost no further than it takes more
    than the operators of its kind that have no counterpart after.
    """
    gone = [op for row in found if not row.after.ops for op in row.before.ops]

    def loss(row: Row) -> float:
        kinds = {op.kind for op in row.after.ops if not row.before.ops}
        return row.loss - sum(op.ms for op in gone if op.kind in kinds)

    losses = ((row, loss(row)) for row in found)
    return sorted(((row, ms) for row, ms in losses if ms > 0), key=lambda pair: -pair[1])


def spent(profile: Profile, kind: Kind) -> float:
    """Return the milliseconds that all operators of a kind take."""
    return sum(o.ms for o in profile.ops if o.kind == kind)


def count(profile: Profile, kind: Kind) -> int:
    """Return how many operators of a kind there are."""
    return sum(o.kind == kind for o in profile.ops)


Group = tuple[list[OpTime], list[OpTime]]
"""Operators before and after."""


def _groups(before: Sequence[OpTime], after: Sequence[OpTime]) -> list[Group]:
    found: list[Group] = []
    alone: dict[str, Group] = {}
    for numbers in _connected([*before, *after]):
        group = ([before[n] for n in numbers if n < len(before)],
                 [after[n - len(before)] for n in numbers if n >= len(before)])  # fmt: skip
        if group[0] and group[1]:
            found.append(group)
            continue
        for op in (*group[0], *group[1]):
            alone.setdefault(op.op, ([], []))[0 if group[0] else 1].append(op)
    return [*found, *alone.values()]


def _connected(ops: Sequence[OpTime]) -> list[list[int]]:
    """Return the numbers of the operators that hang together by common layers."""
    users: defaultdict[str, list[int]] = defaultdict(list)
    for number, op in enumerate(ops):
        for layer in op.layers:
            users[layer].append(number)
    found, seen = [], set[int]()
    for start in range(len(ops)):
        group, pending = [], [start]
        while pending:
            number = pending.pop()
            if number in seen:
                continue
            seen.add(number)
            group.append(number)
            for layer in ops[number].layers:
                pending += users.pop(layer, [])
        if group:
            found.append(sorted(group))
    return found


def _beside(profile: Profile, owners: dict[str, set[int]]) -> dict[int, tuple[tuple[OpTime, ...], float]]:
    """Return the conversions beside each group and its share of their time; −1 is for those beside none."""
    found: defaultdict[int, list[tuple[OpTime, float]]] = defaultdict(list)
    for op in profile.ops:
        if op.kind != "conversion":
            continue
        groups = set[int]().union(*(owners.get(layer, set()) for layer in op.layers)) or {-1}
        for number in groups:
            found[number].append((op, op.ms / len(groups)))
    return {n: (tuple(op for op, _ in each), sum(ms for _, ms in each)) for n, each in found.items()}


def _layers(before: Sequence[OpTime], after: Sequence[OpTime]) -> tuple[str, ...]:
    """Return the layers that both sides know; of a single operator without a counterpart its own."""
    names = [dict.fromkeys(layer for op in ops for layer in op.layers) for ops in (before, after)]
    if before and after:
        return tuple(n for n in names[0] if n in names[1])
    return tuple(names[0] or names[1]) if len(before) + len(after) == 1 else ()


def _types(ops: Iterable[OpTime]) -> str:
    found = Counter(clean(o.op) for o in ops)
    return ", ".join(f"{number} {op}" if number > 1 else op for op, number in found.items())
