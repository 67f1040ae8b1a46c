"""The exporter from ONNX to OpenVINO."""

from __future__ import annotations

import json
from typing import ClassVar, Literal

from compress.artifact import Artifact, Form
from compress.errors import StageError
from compress.runners.onnx_file import read_signature
from compress.stage import Context, Exporter, Produced


class OpenVinoExporter(Exporter):
    """Convert to OpenVINO's files, ``model.xml`` and ``model.bin``. Weights keep their types, Q/DQ graphs stay INT8.

    The precision to compute in and the signature (symbols of axes, which OpenVINO's format lacks) are written into the
    file's own information, section ``compress``.

    Attributes:
        inference_precision: What float operators are computed in; None: what the artifact carries, else ``f32``.
    """

    kind: ClassVar[str] = "export-openvino"
    consumes: ClassVar[Form] = Form.ONNX
    produces: ClassVar[Form] = Form.OPENVINO

    inference_precision: Literal["f32", "bf16", "f16"] | None = None

    def _apply(self, artifact: Artifact, context: Context) -> Produced:
        import openvino

        from compress.runners.openvino import RT_SECTION

        precision = self.inference_precision or artifact.execution.get("inference_precision") or "f32"
        signature = read_signature(artifact.path)
        try:
            # Not openvino.convert_model: it reports its use to the maker over the network unless opted out of.
            model = openvino.Core().read_model(artifact.path)
        except RuntimeError as error:
            reason = next(
                iter(reversed([t.strip() for t in str(error).splitlines() if t.strip()])), type(error).__name__
            )
            raise StageError(f"OpenVINO cannot convert {artifact.path.name}: {reason}") from error
        if len(model.outputs) != len(signature.outputs):
            raise StageError(f"OpenVINO made {len(model.outputs)} outputs of the {len(signature.outputs)} in the file.")
        for ports, specs in ((model.inputs, signature.inputs), (model.outputs, signature.outputs)):
            for port, spec in zip(ports, specs, strict=True):
                if spec.name not in port.get_names():
                    port.get_tensor().add_names({spec.name})
        model.set_rt_info(precision, [RT_SECTION, "inference_precision"])
        model.set_rt_info(json.dumps(signature.to_json()), [RT_SECTION, "signature"])
        path = context.work / "model.xml"
        openvino.save_model(model, path, compress_to_fp16=False)
        notes = () if precision == "f32" else (f"Float operators are computed in {precision}.",)
        return Produced(
            path,
            signature,
            side_files=(path.with_suffix(".bin"),),
            notes=notes,
            execution={**artifact.execution, "inference_precision": precision},
        )
