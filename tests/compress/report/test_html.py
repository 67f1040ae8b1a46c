from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from compress.report.html import render_html
from compress.results import Results


class Page(html.parser.HTMLParser):
    """What a page loads, says and runs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts: list[str] = []
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.policy = ""
        self.data = ""
        self._words: list[str] = []
        self._inside: dict[str, str | None] | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        self.loads += [v or "" for k, v in attrs if k in ("src", "href", "srcset", "poster", "data", "action")]
        self.handlers += [k for k, _ in attrs if k.startswith("on")]
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"] or ""
        if tag in ("script", "style"):
            self._inside = named if tag == "script" else {"type": "style"}

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is None:
            self._words.append(data)
        elif self._inside.get("type") == "application/json":
            self.data += data
        elif self._inside.get("type") != "style":
            self.scripts.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self._words))


@pytest.fixture(scope="module")
def labelled(samples: ModuleType) -> tuple[Results, str]:
    results = samples.labelled()
    return results, render_html(results)


def test_one_file_that_loads_nothing(labelled: tuple[Results, str]) -> None:
    text = labelled[1]
    page = Page(text)
    assert page.loads == []
    assert "link" not in page.tags
    assert "@import" not in text[: text.index("</style>")]
    assert "url(" not in text[: text.index("</style>")]
    assert page.policy.startswith("default-src 'none';")
    assert len(text.encode()) < 6_000_000


def test_only_the_two_scripts_may_run(labelled: tuple[Results, str]) -> None:
    page = Page(labelled[1])
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in page.scripts]
    assert len(hashes) == 2
    assert all(f"'sha256-{h}'" in page.policy for h in hashes)
    assert "script-src 'unsafe-inline'" not in page.policy
    assert page.handlers == []


def test_verdict_first_then_plot_then_table(labelled: tuple[Results, str]) -> None:
    words = Page(labelled[1]).words
    order = ["Ship int8: 2.94× faster than FP32 on ONNX Runtime (95 % interval 2.88–3.00)", "What speed costs",
             "Speed at each batch size", "Where the time goes", "Where the difference arose",
             "What the low-precision passes chose", "What really ran", "How it was measured",
             "compress run --recipe recipe.yaml"]  # fmt: skip
    places = [words.index(o) for o in order]
    assert places == sorted(places)


def test_every_variant_and_number_is_there(labelled: tuple[Results, str]) -> None:
    results, text = labelled
    words = Page(text).words
    for entry in results.variants:
        assert entry.name in words
    expected = (
        "92.50 %", "drop 0.10 points", "−0.04 to 0.24", "inside the noise", "5.40×", "0.633 ms", "p90 0.671 ms",
        "p99 0.753 ms", "1,580 samples/s", "0.331 MB", "peak 11.9 MB", "weights 0.530 MB", "CPUExecutionProvider",
        "It is slower than FP32 on ONNX Runtime.", "artifacts/int8.onnx", "top-1 accuracy drop ≤ 0.5 points",
    )  # fmt: skip
    for said in expected:
        assert said in words, said


def test_where_the_time_goes(labelled: tuple[Results, str]) -> None:
    text = labelled[1]
    words = Page(text).words
    for said in ("One inference at batch 1, operator by operator", "Compute 1.45 ms (99 %) 0.387 ms (88 %) −1.06 ms",
                 "/conv1/Conv 0.100 ms Conv 0.0263 ms QLinearConv int8 0.0110 ms QuantizeLinear before 0.0120 ms",
                 "9 QLinearAdd none", "pruned-int8 not measured — the profiler wrote no file"):  # fmt: skip
        assert said in words, said
    section = text[text.index('id="time"') : text.index('id="difference"')]
    assert [bool(opened) for opened in re.findall(r"<details( open)?>", section)] == [False, True]  # the best one's
    assert section.count('<i style="width:') == 30  # the row of the rest has none


def test_what_the_passes_chose(labelled: tuple[Results, str]) -> None:
    text = labelled[1]
    words = Page(text).words
    for said in ("2 of 20 layers stayed in float: 1 put back into float", "3 combinations were evaluated.",
                 "cross-layer equalization 3.32 → 3.02 % +0.82 dB ✓ kept 12",
                 "/conv1/Conv Conv 31.0 dB fp32 put back into float", "Corrections: none was tried.",
                 "Sensitivity: not measured — no layer was quantized alone."):  # fmt: skip
        assert said in words, said
    assert re.search(r'<div id="sensitivity-1" class="plot" role="img" aria-label="SQNR of the outputs by layer, '
                     r'20 layers\. Lowest: /conv1/Conv: 31\.0 dB[^"]*" hidden>', text)  # fmt: skip
    assert '<details id="sensitivity-1-table" open>' in text
    assert 'id="sensitivity-2"' not in text
    assert set(json.loads(Page(text).data)) == {"plot", "sensitivity-1"}


def test_results_without_profiles_and_details_have_neither_section(samples: ModuleType) -> None:
    results = samples.labelled()
    for entry in results.variants:
        stages = [s.model_copy(update={"details": None}) for s in entry.stages]
        results = samples.change(results, entry.name, profile=None, reasons={}, stages=stages)
    words = Page(render_html(results)).words
    assert "Where the time goes" not in words
    assert "What the low-precision passes chose" not in words


def test_tables_scroll_in_a_box_of_their_own(labelled: tuple[Results, str]) -> None:
    boxes = re.findall(r"<(\w+[^>]*)><table", labelled[1])
    assert len(boxes) == labelled[1].count("<table ")
    assert all(box.startswith('div class="scroll"') for box in boxes)


def test_what_was_not_measured_says_why(labelled: tuple[Results, str]) -> None:
    words = Page(labelled[1]).words
    assert "not measured — the variant could not be made: 2 outputs are NaN" in words
    assert not re.search(r"<t[dh][^>]*>\s*(<div>\s*</div>)?\s*</t[dh]>", labelled[1])


@pytest.mark.parametrize("field", ["metric", "fidelity", "latency_ms", "throughput", "memory_mb", "speedup"])
def test_each_missing_field_gives_its_own_reason(samples: ModuleType, field: str) -> None:
    results = samples.change(samples.labelled(), "int8", **{field: None, "reasons": {field: f"no {field} today"}})
    words = Page(render_html(results)).words
    assert f"not measured — no {field} today" in words


def test_a_part_of_memory_that_is_missing(samples: ModuleType) -> None:
    memory = samples.labelled().variants[2].memory_mb.model_copy(update={"peak": None, "weights": None})
    results = samples.change(samples.labelled(), "int8", memory_mb=memory, reasons={"memory_mb.peak": "no /proc here"})
    words = Page(render_html(results)).words
    assert "not measured — no /proc here" in words
    assert "weights not measured — no reason was recorded" in words


def test_text_of_users_stays_text(samples: ModuleType) -> None:
    results = samples.hostile()
    page = Page(render_html(results))
    assert len(page.scripts) == 2
    assert page.handlers == []
    assert page.loads == []
    assert "a" not in page.tags
    assert "<script>alert('ü')</script>|`x` \ufffd[31m*a*_b_ [c](http://evil.example/) @team" in page.words
    assert "x" * 120 in page.words
    assert any("x" * 10 in str(t["hovertext"]) for t in json.loads(page.data)["plot"]["data"])


def test_a_layer_whose_name_is_a_script_stays_text(samples: ModuleType) -> None:
    text = render_html(samples.with_layer("<script>alert(1)</script>"))
    page = Page(text)
    assert "<script>alert(1)" not in text
    assert len(page.scripts) == 2
    assert page.words.count("<script>alert(1)</script>") == 2  # where its time goes, and how sensitive it is
    hover = json.loads(page.data)["sensitivity-1"]["data"][0]["hovertext"][0]
    assert hover.startswith("<b>&lt;script&gt;alert(1)&lt;/script&gt;</b>")


def test_a_run_in_which_nothing_worked_has_a_report(samples: ModuleType) -> None:
    results = samples.labelled()
    bare = results.baseline.model_copy(
        update=dict.fromkeys(("metric", "latency_ms", "throughput", "memory_mb", "size_bytes")) | {"facts": {}}
    )
    results = results.model_copy(
        update={"baseline": bare, "variants": results.variants[-1:], "best": None, "notes": [], "environment": {}}
    )
    page = Page(render_html(results))
    assert "No variant could be made." in page.words
    assert page.scripts == []
    assert "script-src 'none'" in page.policy


def test_dark_and_light(labelled: tuple[Results, str]) -> None:
    style = labelled[1][labelled[1].index("<style>") : labelled[1].index("</style>")]
    assert "prefers-color-scheme: dark" in style
    assert "color-scheme: light dark" in style


def test_the_plot_is_drawn_without_a_network(labelled: tuple[Results, str], tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    file = tmp_path / "report.html"
    file.write_text(labelled[1], encoding="utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
               "--disable-background-networking", "--disable-component-update", "--disable-sync",
               "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}",
               "--virtual-time-budget=4000", "--dump-dom", file.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    page = done.stdout
    assert page.count('class="main-svg"') >= 1
    assert len(re.findall(r'class="point"', page)) == 5 + 20  # entries of the trade-off, layers of the bar chart
    assert not re.search(r'<details id="sensitivity-1-table" open', page)
    assert not re.search(r'<details id="plot-table" open', page)  # folded away once the plot is there


def test_without_scripts_the_plot_is_a_table(labelled: tuple[Results, str]) -> None:
    text = labelled[1]
    assert '<details id="plot-table" open>' in text
    assert re.search(
        r'<div id="plot" class="plot" role="img" aria-label="[^"]*int8 \(best\): 2\.94×[^"]*" hidden>', text
    )
    assert "<noscript>" in text
