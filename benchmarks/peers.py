"""What the benchmarks share: the peers, each in a Python of its own, and calls of this project's command line.

A peer is INT8 by another tool's own defaults: onnxruntime's `quantize_static`, NNCF's `nncf.quantize` (to an OpenVINO
file), NVIDIA Model Optimizer's `modelopt.onnx.quantization.quantize` (int8, entropy). All get the same ONNX file and
the same calibration samples. The last two pin versions that this project doesn't, so each lives in an environment of
its own, whose Python is named on the command line; one that isn't there is a row that says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import compress
from compress.artifact import Artifact, ModelSource
from compress.data.open import open_dataset
from compress.errors import CompressError
from compress.load.loader import open_source
from compress.progress import Quiet
from compress.report import read_results
from compress.results import Entry, Results
from compress.runners.base import RunOptions
from compress.runners.targets import TARGETS
from compress.runners.verify import make_verifier
from compress.stage import Context, Stage

TIMEOUT = 3600.0
"""Seconds that a peer may take for one file."""

_READER = """
import sys
import numpy as np

source, samples, output = sys.argv[1:4]
archive = np.load(samples)
feeds = {}
for key in archive.files:
    number, _, name = key.partition("/")
    feeds.setdefault(int(number), {})[name] = archive[key]
feeds = [feeds[number] for number in sorted(feeds)]
"""

_ONNXRUNTIME = """
from onnxruntime.quantization import CalibrationDataReader, quantize_static

class Reader(CalibrationDataReader):
    def __init__(self):
        self.rewind()
    def get_next(self):
        return next(self.left, None)
    def get_first(self):
        return feeds[0]
    def rewind(self):
        self.left = iter(feeds)
    def __len__(self):
        return len(feeds)
"""

_NNCF = """
import nncf
import openvino

model = openvino.Core().read_model(source)
openvino.save_model(nncf.quantize(model, nncf.Dataset(feeds)), output, compress_to_fp16=False)
"""

_MODELOPT = """
from modelopt.onnx.quantization import quantize

quantize(source, calibration_data_reader=Reader(), calibration_eps=["cpu"], output_path=output, log_level="ERROR")
"""


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another tool's INT8.

    Attributes:
        name: Of its row.
        script: Python that reads `source` with `feeds` and writes `output`.
        suffix: Of the file it writes.
        option: The flag that names its Python; empty: it runs in ours.
    """

    name: str
    script: str
    suffix: str
    option: str = ""


ONNXRUNTIME = Peer("onnxruntime defaults", _ONNXRUNTIME + "quantize_static(source, output, Reader())\n", ".onnx")
NNCF = Peer("NNCF defaults, OpenVINO", _NNCF, ".xml", "--nncf-python")
MODELOPT = Peer("Model Optimizer defaults", _ONNXRUNTIME + _MODELOPT, ".onnx", "--modelopt-python")


class Lines(Quiet):
    """Shows what a user must know."""

    def warn(self, text: str) -> None:
        """Print to the standard error."""
        print(f"warning: {text}", file=sys.stderr)


def parser_for(description: str | None, *peers: Peer) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark takes, and those of the peers."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--quick", action="store_true", help="few rows, samples and rounds, to see that it works")
    for peer in peers:
        if peer.option:
            tool = peer.name.partition(" defaults")[0]
            parser.add_argument(peer.option, type=Path, help=f"Python of an environment that has {tool}")
    return parser


def parse(parser: argparse.ArgumentParser, models: Sequence[str], quick: str) -> argparse.Namespace:
    """Parse the options, with ``models`` as the list of those to run: all, or ``quick`` alone in a quick run."""
    parser.add_argument("--models", help=f"of {','.join(models)}, joined by commas; all where not given")
    options = parser.parse_args()
    options.models = options.models.split(",") if options.models else [quick] if options.quick else list(models)
    if unknown := [m for m in options.models if m not in models]:
        parser.error(f"no model is called {unknown[0]}; there are {', '.join(models)}")
    return options


def python_of(peer: Peer, options: argparse.Namespace) -> Path | None:
    """Return the Python that was given for a peer; None where none was."""
    if not peer.option:
        return Path(sys.executable)
    found: Path | None = getattr(options, peer.option.strip("-").replace("-", "_"))
    return found


def save_samples(feeds: Iterable[Mapping[str, Any]], path: Path) -> Path:
    """Keep calibration inputs for peers: one entry `NUMBER/INPUT` an array."""
    np.savez(path, **{f"{n}/{name}": array for n, inputs in enumerate(feeds) for name, array in inputs.items()})
    return path


def run_stage(
    stage: Stage, artifact: Artifact, target: str, work: Path, threads: int, calibration: Path | None = None
) -> Artifact:
    """Run one stage of ours in a folder of its own, checked as in a run."""
    folder = Path(tempfile.mkdtemp(dir=work))
    context = Context(
        target=TARGETS[target],
        work=folder,
        progress=Lines(),
        verify=make_verifier(RunOptions(threads), folder, None, 0, Quiet()),
        calibration=open_dataset(str(calibration), None, workers=0) if calibration is not None else None,
        threads=threads,
    )
    return stage.run(artifact, context)


def make(peer: Peer, python: Path | None, source: Path, samples: Path, work: Path) -> Artifact:
    """Have a peer quantize an ONNX file.

    Raises:
        CompressError: It isn't there, fails, or takes too long.
    """
    if python is None:
        raise CompressError(f"not measured: {peer.option} names no environment with it")
    output = work / f"{''.join(filter(str.isalnum, peer.name))}{peer.suffix}"
    command = [str(python), "-c", _READER + peer.script, str(source), str(samples), str(output)]
    # Without our own folders on its path, in which it would find other versions of what it needs.
    given = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} if peer.option else None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=given, cwd=work, timeout=TIMEOUT
        )
    except OSError as error:
        raise CompressError(f"not measured: {python} cannot be run ({error.strerror})") from error
    except subprocess.TimeoutExpired as error:
        raise CompressError(f"not measured: it took more than {TIMEOUT / 60:.0f} minutes") from error
    if done.returncode != 0 or not output.is_file():
        raise CompressError(f"not measured: it failed: {_last(done.stderr)} (exit code {done.returncode})")
    return open_source(ModelSource(str(output)))[0]


def compress_run(settings: Mapping[str, Any], flags: Sequence[str], folder: Path) -> Results:
    """Run this project's command line with a recipe; return what it found.

    Raises:
        CompressError: There are no results.
    """
    recipe = folder.with_suffix(".yaml")
    recipe.write_text(yaml.safe_dump(dict(settings)), encoding="utf-8")
    command = [sys.executable, "-c", "from compress.cli import main; main()", "run", "--recipe", str(recipe)]
    command += [*flags, "--out", str(folder)]
    # The same compress as here, wherever the working folder is.
    path = os.pathsep.join([str(Path(compress.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path.strip(os.pathsep)}
    )
    if not (folder / "results.json").is_file():
        raise CompressError(f"compress run failed with exit code {done.returncode}: {_last(done.stderr)}")
    return read_results(folder / "results.json")


def variant_of(results: Results, name: str) -> Entry:
    """Return a variant that was made.

    Raises:
        CompressError: It wasn't.
    """
    entry = next((v for v in results.variants if v.name == name), None)
    if entry is None or entry.artifact is None:
        reasons = "; ".join(entry.verdict.reasons) if entry is not None else "no such variant"
        raise CompressError(f"not measured: {reasons}")
    return entry


def finish(rows: Sequence[Mapping[str, Any]], problems: Sequence[str], file: Path | None, **more: Any) -> int:
    """Print what falls short, write the figures, and return the exit code."""
    for problem in problems:
        print(f"short: {problem}")
    if file is not None:
        document = {"machine": machine(), **more, "rows": rows, "short": problems}
        file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if problems else 0


def machine() -> str:
    """Return the CPU as the runtime names it."""
    import openvino

    core = openvino.Core()
    return f"{core.get_property('CPU', 'FULL_DEVICE_NAME')} ({platform.machine()})"


def tell(text: str) -> None:
    """Say on the standard error what is being done."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _last(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")[:300]
