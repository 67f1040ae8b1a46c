"""AdaRound: which way each weight is rounded is learnt, so that its layer's output changes least.

Nagel, Amjad, van Baalen, Louizos, Blankevoort, "Up or Down? Adaptive Rounding for Post-Training Quantization", 2020.
Layer by layer, on the layer's own inputs; scales stay as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from compress.data.base import Array
from compress.passes.int8.patches import Rows, layer_rows
from compress.passes.int8.weights import QuantizedWeight, Weights, quantized_weights
from compress.passes.observe import watch
from compress.passes.onnx_models import save_model

ROWS = 1280
"""Rows of inputs kept a layer; a fifth of them judge what was learnt on the others."""
MINIBATCH = 256
ITERATIONS = 500
FEWEST = 100
WORK = 1e11
"""Multiply-accumulates spent on one layer at most; one that needs more for `FEWEST` iterations keeps its rounding."""
MEMORY = 256e6
"""Bytes of inputs kept at once; more layers than fit take another pass over the data."""
STRETCH_LOW, STRETCH_HIGH = -0.1, 1.1
LEARNING_RATE = 5e-2
REGULARIZATION = 30.0
"""How strongly weights are pulled to one side, against the error in units of that of rounding to the nearest."""


@dataclasses.dataclass
class _Task:
    """A layer whose rounding is learnt.

    Attributes:
        node: The layer in the float graph.
        kept: Its weight in the Q/DQ file.
        rows: How its inputs and weight become matrices.
        collected: float32 ``[rows, groups, taps]`` pieces.
    """

    node: onnx.NodeProto
    kept: QuantizedWeight
    rows: Rows
    iterations: int
    collected: list[Array] = dataclasses.field(default_factory=list)

    @property
    def bytes(self) -> float:
        return 4.0 * ROWS * self.rows.groups * self.rows.taps


def learn_rounding(
    model: onnx.ModelProto,
    quantized: Path,
    layers: Sequence[str],
    batches: Callable[[], Iterable[Mapping[str, Array]]],
    *,
    work: Path,
    threads: int,
    seed: int,
    advance: Callable[[int], None],
    memory_mb: float = 512.0,
) -> dict[str, Array]:
    """Learn roundings of the weights of Conv (two-dimensional), Gemm and MatMul layers.

    Args:
        model: The float model.
        quantized: Its Q/DQ file, for scales and the rounding to begin with.
        layers: Names of quantized layers.
        batches: Yields calibration inputs, from the start at every call.
        work: Folder for intermediate files.
        threads: Threads.
        seed: Decides rows and the order of minibatches.
        advance: Called with 1 a layer.
        memory_mb: Bound on the observed values of one batch.

    Returns:
        Name of an int8 initializer of the Q/DQ file → its values with the learnt rounding, for layers whose output
        error fell on rows that weren't learnt from.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    found: dict[str, Array] = {}
    try:
        tasks = _tasks(model, quantized, set(layers))
        for _ in range(len(layers) - len(tasks)):
            advance(1)
        weights = Weights(model)
        for group in _grouped(tasks):
            _collect(model, group, batches, work, threads, seed, memory_mb)
            for task in group:
                values = _learn(task, weights.get(task.node.input[1]), seed)
                task.collected.clear()
                if values is not None:
                    found[task.kept.name] = values
                advance(1)
    finally:
        torch.set_num_threads(before)
    return found


def write_rounding(path: Path, rounding: Mapping[str, Array], output: Path) -> None:
    """Write learnt roundings into a Q/DQ file; those of weights that it doesn't have are left out."""
    from compress.passes.int8.insert import is_large

    large = is_large(path)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name in rounding:
            tensor.CopyFrom(numpy_helper.from_array(rounding[tensor.name], tensor.name))
    save_model(model, output, large=large)


def _tasks(model: onnx.ModelProto, quantized: Path, layers: set[str]) -> list[_Task]:
    weights, kept = Weights(model), quantized_weights(quantized)
    tasks = []
    for node in model.graph.node:
        if node.name not in layers or node.name not in kept or node.input[1] not in weights:
            continue
        rows = layer_rows(node, weights.shape(node.input[1]))
        if rows is None or weights.shared(node.input[1]):
            continue
        cost = 3.0 * MINIBATCH * np.prod(weights.shape(node.input[1]))
        iterations = int(min(ITERATIONS, WORK / cost))
        if iterations >= FEWEST:
            tasks.append(_Task(node, kept[node.name], rows, iterations))
    return tasks


def _grouped(tasks: Sequence[_Task]) -> Iterator[list[_Task]]:
    group: list[_Task] = []
    for task in tasks:
        if group and sum(t.bytes for t in group) + task.bytes > MEMORY:
            yield group
            group = []
        group.append(task)
    if group:
        yield group


def _collect(
    model: onnx.ModelProto,
    tasks: Sequence[_Task],
    batches: Callable[[], Iterable[Mapping[str, Array]]],
    work: Path,
    threads: int,
    seed: int,
    memory_mb: float,
) -> None:
    """Fill every task with rows of its inputs, an even share from each batch."""
    readers: dict[str, list[_Task]] = {}
    for task in tasks:
        readers.setdefault(task.node.input[0], []).append(task)
    share = -(-ROWS // max(1, sum(1 for _ in batches())))

    def see(name: str, values: Array, batch: int) -> None:
        for task in readers[name]:
            chance = np.random.default_rng((seed, batch))
            task.collected.append(task.rows.sample(values, share, chance))

    watch(model, list(readers), batches, see, work=work, threads=threads, advance=lambda n: None, memory_mb=memory_mb)


def _learn(task: _Task, weight: Array, seed: int) -> Array | None:
    """Return the layer's int8 values with learnt rounding; None where the error on the rows held out didn't fall."""
    import torch

    if not task.collected:
        return None
    rows = torch.from_numpy(np.concatenate(task.collected)).transpose(0, 1).contiguous()  # [groups, rows, taps]
    held = max(1, rows.shape[1] // 5)
    learn, judge = rows[:, held:], rows[:, :held]
    if learn.shape[1] < 2:
        return None
    float_weight = torch.from_numpy(task.rows.as_matrix(weight.astype(np.float32)))  # [groups, taps, outputs]
    scale = torch.from_numpy(task.rows.as_matrix(np.broadcast_to(task.kept.scale, weight.shape).astype(np.float32)))
    nearest = torch.from_numpy(task.rows.as_matrix(task.kept.values.astype(np.float32)))
    top = 127.0 if float(nearest.abs().max()) > 64 else 64.0
    floor = torch.floor(float_weight / scale)
    value = _optimize(learn, float_weight, scale, floor, nearest, top, task.iterations, seed)
    learnt = torch.clamp(floor + value, -top, top)

    def error(levels: Any) -> float:
        return float(torch.matmul(judge, float_weight - levels * scale).square().mean())

    if not error(learnt) < error(nearest):
        return None
    return np.ascontiguousarray(task.rows.from_matrix(learnt.numpy(), weight.shape).astype(np.int8))


def _optimize(
    learn: Any, weight: Any, scale: Any, floor: Any, nearest: Any, top: float, iterations: int, seed: int
) -> Any:
    """Return 0 or 1 for each weight: round down or up."""
    import torch

    rest = (weight / scale - floor).clamp(1e-3, 1 - 1e-3)
    start = (rest - STRETCH_LOW) / (STRETCH_HIGH - STRETCH_LOW)
    variable = torch.log(start / (1 - start)).requires_grad_()
    optimizer = torch.optim.Adam([variable], lr=LEARNING_RATE)
    chance = torch.Generator().manual_seed(seed)
    # Against the outputs' power an error of INT8 is so small that its gradients drown in what Adam adds to its divisor.
    reference = torch.matmul(learn, weight - nearest * scale).square().mean().clamp_min(1e-30)
    for step in range(iterations):
        chosen = torch.randint(learn.shape[1], (min(MINIBATCH, learn.shape[1]),), generator=chance)
        soft = (torch.sigmoid(variable) * (STRETCH_HIGH - STRETCH_LOW) + STRETCH_LOW).clamp(0, 1)
        levels = (floor + soft).clamp(-top, top)
        inputs = learn[:, chosen]
        loss = torch.matmul(inputs, weight - levels * scale).square().mean() / reference
        done = step / iterations
        if done > 0.2:  # at first the error alone decides
            beta = 20 + (2 - 20) * (done - 0.2) / 0.8
            pull = (1 - (2 * soft - 1).abs().pow(beta)).mean()
            loss = loss + REGULARIZATION * pull
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return (torch.sigmoid(variable.detach()) >= 0.5).float()
