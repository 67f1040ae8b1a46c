"""Where the time of one inference goes, from what a runtime's own profiler says of each operator it executes."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from compress.results import OpTime, Profile

WARM_UP = 5
"""Inferences before those that count."""

Kind = Literal["compute", "conversion", "other"]


@dataclasses.dataclass(frozen=True)
class Executed:
    """One operator as the runtime executes it.

    Attributes:
        name: The runtime's name of it.
        op: Its type there.
        kind: What it is for; see :class:`compress.results.OpTime`.
        precision: What it computes in; empty where unknown.
        layers: Names of the model's own nodes that it was made of; of a conversion none.
        reads: Tensors it reads, by any names that tell them apart.
        makes: Tensors it makes.
    """

    name: str
    op: str
    kind: Kind
    precision: str
    layers: tuple[str, ...]
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


def profile_of(executed: Sequence[Executed], times: Mapping[str, Sequence[float]], batch: int, runs: int) -> Profile:
    """Return a profile; a conversion gets the layers of the operators on both sides of it.

    Args:
        executed: Operators in the order of execution.
        times: Operator → milliseconds of each run; those that never ran are left out.
        batch: Samples an inference.
        runs: Inferences measured.
    """
    around = _neighbours(executed)
    ops = [
        OpTime(
            name=op.name,
            op=op.op,
            kind=op.kind,
            precision=op.precision,
            layers=list(around[op.name] if op.kind == "conversion" else op.layers),
            ms=statistics.median(times[op.name]),
        )
        for op in executed
        if times.get(op.name)
    ]
    return Profile(batch=batch, runs=runs, total_ms=sum(o.ms for o in ops), ops=ops)


def renamed(profile: Profile, names: Mapping[str, str]) -> Profile:
    """Return a profile with other names for some layers."""
    ops = [op.model_copy(update={"layers": [names.get(n, n) for n in op.layers]}) for op in profile.ops]
    return profile.model_copy(update={"ops": ops})


def _neighbours(executed: Sequence[Executed]) -> dict[str, tuple[str, ...]]:
    """Return the layers next to each conversion, through others and through what the runtime put in itself."""
    maker = {tensor: op for op in executed for tensor in op.makes}
    readers: defaultdict[str, list[Executed]] = defaultdict(list)
    for op in executed:
        for tensor in op.reads:
            readers[tensor].append(op)

    def before(op: Executed) -> Iterable[Executed]:
        return (maker[t] for t in op.reads if t in maker)

    def after(op: Executed) -> Iterable[Executed]:
        return (r for t in op.makes for r in readers[t])

    found = {}
    for op in executed:
        if op.kind != "conversion":
            continue
        layers: dict[str, None] = {}
        for step in (before, after):
            pending, seen = list(step(op)), {op.name}
            while pending:
                next_one = pending.pop()
                if next_one.name in seen:
                    continue
                seen.add(next_one.name)
                if next_one.kind == "conversion" or (next_one.kind == "other" and not next_one.layers):
                    pending += step(next_one)
                else:
                    layers |= dict.fromkeys(next_one.layers)
        found[op.name] = tuple(layers)
    return found
