"""``compress eval``: any artifact on any labelled data."""

from __future__ import annotations

from typing import Annotated

import typer

from compress.cli import options as o


def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model file of any form (.pt, .pt2, .onnx, .xml, …).")],
    data: o.Data = None,
    code: o.Code = None,
    input: o.Input = None,
    preprocess: o.Preprocess = None,
    metric: o.Metric = None,
    samples: Annotated[int | None, typer.Option(help="Evaluation samples.  [all]")] = None,
    threads: o.Threads = None,
    trust_pickle: o.Trust = False,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Score MODEL on labelled data, in the runtime of its form."""
    import json

    from compress.cli.console import ConsoleProgress
    from compress.recipe import make_recipe

    given = {
        "model": model,
        "data": data,
        "code": code,
        "input": input or None,
        "preprocess": preprocess,
        "metric": metric,
        "eval_samples": samples,
        "threads": threads,
        "trust_pickle": trust_pickle,
    }
    recipe = make_recipe({k: v for k, v in given.items() if v is not None})
    from compress.pipeline.single import evaluate_artifact

    entry = evaluate_artifact(recipe, ConsoleProgress(verbose=verbose, quiet=as_json))
    if as_json:
        typer.echo(json.dumps(entry.model_dump(mode="json"), indent=2))
        return
    found = entry.metric
    if found is not None:
        extra = "".join(f", {name} {value:.2f}" for name, value in found.extra.items())
        typer.echo(f"{entry.name}: {found.name} {found.value:.2f} {found.unit}{extra} on {found.samples:,} samples")
    typer.echo(f"{entry.precision}, {entry.facts.get('runtime')} {entry.facts.get('version')}, "
               f"{entry.facts.get('threads')} threads on {entry.facts.get('device')}")  # fmt: skip
