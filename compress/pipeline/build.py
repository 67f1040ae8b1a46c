"""Building variants: every stage through the cache of the run folder, exporters put in where forms differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import compress
from compress.artifact import Artifact, Form, StageRecord
from compress.pipeline.environment import versions
from compress.pipeline.plan import Variant, exporters_for
from compress.recipe import Recipe
from compress.stage import Context, Stage
from compress.store import RunFolder, require_space


@dataclasses.dataclass
class Builder:
    """Makes variants from one source artifact.

    Attributes:
        store: The run folder.
        recipe: Settings of the exporters.
        context: What stages may use; its work folder is set for each stage.
        cached: Records of stages whose result came from the cache.
    """

    store: RunFolder
    recipe: Recipe
    context: Context
    cached: list[StageRecord] = dataclasses.field(default_factory=list)

    def build(self, variant: Variant, source: Artifact) -> Artifact:
        """Run the variant's passes, then lower to what the target executes.

        Raises:
            CompressError: A stage failed; the message names it.
        """
        artifact = source
        for step in variant.passes:
            artifact = self._lower(artifact, step.consumes)
            artifact = self._stage(step, artifact)
        return self._lower(artifact, self.context.target.form)

    def _lower(self, artifact: Artifact, form: Form) -> Artifact:
        for exporter in exporters_for(self.recipe, artifact.form, form):
            artifact = self._stage(exporter, artifact)
        return artifact

    def _stage(self, stage: Stage, artifact: Artifact) -> Artifact:
        calibration = self.context.calibration
        key = {
            "stage": stage.kind,
            "settings": stage.model_dump(mode="json"),
            "parent": artifact.sha256,
            "execution": dict(artifact.execution),
            "signature": artifact.signature.to_json(),
            "target": self.context.target.name,
            "calibration": calibration.fingerprint() if calibration is not None else None,
            "trials": self.context.trials.key() if self.context.trials is not None else None,
            "seed": self.context.seed,
            "versions": {**versions(), "compress": compress.__version__},
        }
        made, cached = self.store.stage(key, self._runner(stage, artifact))
        if cached:
            self.cached.append(made.lineage[-1])
        self.context.progress.detail(f"{stage.kind}: {'from the cache' if cached else 'done'} ({made.path.name})")
        return made

    def _runner(self, stage: Stage, artifact: Artifact) -> Callable[[Path], Artifact]:
        def make(work: Path) -> Artifact:
            self.context.progress.line(f"{stage.kind} …")
            # The result, and what is written on the way there: graphs that are observed, optimized, prepared.
            require_space(work, 5 * artifact.size_bytes + 10_000_000)
            made = stage.run(artifact, dataclasses.replace(self.context, work=work))
            for note in made.lineage[-1].notes:
                self.context.progress.detail(f"  {note}")
            return made

        return make
