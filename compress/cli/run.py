"""``compress run``: the main job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from compress.cli.options import numbers

_MODEL, _DATA, _VARIANTS, _MEASURE = "Model", "Data", "Variants and export", "Measuring"
_BUDGET, _OUTPUT = "Budget", "Output"


def run(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL]",
            help="Model file (.pt, .pth, .pt2, .safetensors, TorchScript, .onnx), or an architecture such as "
            "torchvision:resnet50. May come from the recipe.",
        ),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(
            help="Where the architecture comes from: FILE.py:factory, package.module:factory, torchvision:NAME, "
            "timm:NAME.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(
            help="Input: 1x3x32x32, or ids:int64:1x128; once an input.", metavar="SPEC", rich_help_panel=_MODEL
        ),
    ] = None,
    trust_pickle: Annotated[
        bool | None,
        typer.Option(
            "--trust-pickle",
            help="Allow the model file to run code of its own when it is opened.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Evaluation data: image folder, .npz, .csv/.jsonl of text pairs, FILE.py:factory, or a URL of one.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    calibration: Annotated[str | None, typer.Option(help="Calibration data.", rich_help_panel=_DATA)] = None,
    train: Annotated[str | None, typer.Option(help="Training data.", rich_help_panel=_DATA)] = None,
    samples: Annotated[int | None, typer.Option(help="Calibration samples.  [300]", rich_help_panel=_DATA)] = None,
    selection_samples: Annotated[
        int | None,
        typer.Option(help="Samples that searches within --max-drop are judged on.  [5000]", rich_help_panel=_DATA),
    ] = None,
    eval_samples: Annotated[int | None, typer.Option(help="Evaluation samples.  [all]", rich_help_panel=_DATA)] = None,
    preprocess: Annotated[
        str | None,
        typer.Option(
            help="imagenet, cifar10, none, a YAML/JSON file, or a tokenizer.json.",
            metavar="PRESET|FILE",
            rich_help_panel=_DATA,
        ),
    ] = None,
    bad_samples: Annotated[
        str | None, typer.Option(help="stop or skip at unreadable and NaN samples.  [stop]", rich_help_panel=_DATA)
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Threads that load data.  [2]", rich_help_panel=_DATA)] = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric, or FILE.py:function.  [by the data]", rich_help_panel=_DATA)
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="ort-cpu, openvino or auto.  [auto]", rich_help_panel=_VARIANTS)
    ] = None,
    variants: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: fp32,fp16,bf16,int8 or NAME=PASS:key=value+PASS.  [by the target]",
            rich_help_panel=_VARIANTS,
        ),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="YAML recipe; flags win over it.", rich_help_panel=_VARIANTS)
    ] = None,
    opset: Annotated[int | None, typer.Option(help="ONNX opset.  [the exporter's]", rich_help_panel=_VARIANTS)] = None,
    io_types: Annotated[
        str | None,
        typer.Option(help="Inputs and outputs of FP16 files.  [keep]", metavar="keep|low", rich_help_panel=_VARIANTS),
    ] = None,
    optimize: Annotated[
        bool | None, typer.Option(help="Run the ONNX optimizer.  [on]", rich_help_panel=_VARIANTS)
    ] = None,
    external_data_mb: Annotated[
        float | None,
        typer.Option(help="Weights above this go into a side file.  [1900]", rich_help_panel=_VARIANTS),
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help="Batch sizes to measure; the first is judged.  [1,8]", rich_help_panel=_MEASURE)
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads a runtime may use.  [CPUs available]", rich_help_panel=_MEASURE)
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of measuring.  [7]", rich_help_panel=_MEASURE)] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.  [0]", rich_help_panel=_MEASURE)] = None,
    max_drop: Annotated[
        float | None, typer.Option(help="Points of the metric that may be lost.", rich_help_panel=_BUDGET)
    ] = None,
    min_speedup: Annotated[
        float | None, typer.Option(help="Speed-up asked for, against the runtime at FP32.", rich_help_panel=_BUDGET)
    ] = None,
    max_latency_ms: Annotated[
        float | None, typer.Option(help="Median latency allowed, first batch size.", rich_help_panel=_BUDGET)
    ] = None,
    max_size_mb: Annotated[float | None, typer.Option(help="File size allowed.", rich_help_panel=_BUDGET)] = None,
    allow_chance: Annotated[
        bool | None,
        typer.Option("--allow-chance", help="Go on although the baseline is near chance.", rich_help_panel=_BUDGET),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder.  [compress-runs/<model>-<n>]", rich_help_panel=_OUTPUT)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Measure again in a finished run's folder.", rich_help_panel=_OUTPUT)
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print results.json on stdout.", rich_help_panel=_OUTPUT)
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show details.", rich_help_panel=_OUTPUT)] = False,
) -> None:
    r"""Compress MODEL, measure every variant against the baseline, and write a report.

    \b
    compress run model.pt --code net.py:Net --data val/ --preprocess imagenet
    compress run model.onnx --data val.npz --target openvino --max-drop 0.5 --min-speedup 1.5
    """
    given: dict[str, Any] = {
        "model": model,
        "code": code,
        "input": input or None,
        "trust_pickle": trust_pickle,
        "data": data,
        "calibration": calibration,
        "train": train,
        "samples": samples,
        "selection_samples": selection_samples,
        "eval_samples": eval_samples,
        "preprocess": preprocess,
        "bad_samples": bad_samples,
        "workers": workers,
        "metric": metric,
        "target": target,
        "variants": _split(variants),
        "opset": opset,
        "io_types": io_types,
        "optimize": optimize,
        "external_data_mb": external_data_mb,
        "batch": numbers(batch, "--batch"),
        "threads": threads,
        "rounds": rounds,
        "seed": seed,
        "max_drop": max_drop,
        "min_speedup": min_speedup,
        "max_latency_ms": max_latency_ms,
        "max_size_mb": max_size_mb,
        "allow_chance": allow_chance,
    }
    _run({k: v for k, v in given.items() if v is not None}, recipe, out, force=force, as_json=as_json, verbose=verbose)


def _run(
    settings: dict[str, Any], recipe: Path | None, out: Path | None, *, force: bool, as_json: bool, verbose: bool
) -> None:
    import sys

    from compress.cli.console import ConsoleProgress
    from compress.errors import BudgetError, StageError, UsageError
    from compress.recipe import load_recipe, make_recipe

    if recipe is None and "model" not in settings:
        raise UsageError("compress run needs a MODEL, or a --recipe that names one.", "See compress run --help.")
    checked = load_recipe(recipe, settings) if recipe else make_recipe(settings)
    progress = ConsoleProgress(verbose=verbose, quiet=as_json)
    from compress.pipeline.run import run_recipe

    results, folder = run_recipe(checked, out=out, force=force, progress=progress)
    if as_json:
        sys.stdout.write(results.model_dump_json(indent=2) + "\n")
    else:
        from rich.console import Console

        from compress.report.text import summary_table

        Console(highlight=False).print(summary_table(results))
        typer.echo(f"\nReport: {folder / 'report.html'}")
    failed = [v.name for v in results.variants if v.verdict.status == "failed"]
    if failed:
        raise StageError(f"{', '.join(failed)} could not be made; the report says why.")
    if results.best is None:
        raise BudgetError(
            f"Budget not met: {results.budget.explanation}", "See the report for what each variant lacks."
        )


def _split(text: str | None) -> list[str] | None:
    """Split at commas outside brackets, so that a setting may hold a list."""
    return None if text is None else [part for part in re.split(r",(?![^\[]*\])", text) if part.strip()]
