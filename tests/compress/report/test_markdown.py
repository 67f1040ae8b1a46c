from __future__ import annotations

import re
from types import ModuleType

import pytest

from compress.report.markdown import escape, render_markdown


def test_verdict_budget_and_table(samples: ModuleType) -> None:
    text = render_markdown(samples.labelled())
    assert text.startswith("## ✅ Ship int8: 2.94× faster than FP32 on ONNX Runtime (95 % interval 2.88–3.00)")
    assert "| speed-up ≥ 1.5× | 2.94× | ✓ met |" in text
    assert (
        "| int8 | ★ best | **int8**<br>ONNX Runtime<br>ort-cpu | **92.50 %**<br>drop 0.10 points<br>−0.04 to 0.24<br>"
        "inside the noise | **2.94×**<br>2.88–3.00 | **5.40×**<br>5.29–5.51 | **0.633 ms**<br>p90 0.671 ms<br>"
        "p99 0.753 ms | **1,580 samples/s**<br>1,550–1,600 | **0.331 MB** | **peak 11.9 MB**<br>weights 0.530 MB |"
    ) in text
    assert "not measured — the variant could not be made: 2 outputs are NaN | not measured — same reason" in text
    assert "compress run --recipe recipe.yaml" in text
    assert len(text) < 65_536  # the longest comment that GitHub takes


@pytest.mark.parametrize("sample", ["labelled", "unlabelled", "nothing_keeps_budget", "hostile"])
def test_every_row_of_a_table_has_as_many_cells_as_its_head(samples: ModuleType, sample: str) -> None:
    text = render_markdown(getattr(samples, sample)())
    width = None
    for line in text.splitlines():
        if not line.startswith("|"):
            width = None
            continue
        cells = len(re.split(r"(?<!\\)\|", line))
        assert width in (None, cells), line
        width = cells
        assert "| |" not in line
        assert "|  |" not in line


def section(text: str, title: str) -> str:
    return text.split(f"<details><summary>{title}</summary>\n\n")[1].split("\n\n</details>")[0]


def test_where_the_time_goes(samples: ModuleType) -> None:
    found = section(render_markdown(samples.labelled()), "Where the time goes")
    assert found.startswith("One inference at batch 1, operator by operator: median of 20")
    assert "| Compute | 1.45 ms (99 %) | 0.387 ms (88 %) | −1.06 ms |" in found
    assert (
        "| /conv1/Conv | **0.100 ms**<br>Conv | **0.0263 ms**<br>QLinearConv | **int8** | "
        "**0.0110 ms**<br>QuantizeLinear<br>before 0.0120 ms | **−0.0747 ms** |"
    ) in found
    assert "| 14 more rows |" in found
    assert found.count("| /") == 8 + 7  # of fp16; of int8, whose eighth is no layer's
    assert found.endswith("**pruned-int8**: not measured — the profiler wrote no file")


def test_what_the_passes_chose(samples: ModuleType) -> None:
    found = section(render_markdown(samples.labelled()), "What the low-precision passes chose")
    assert found.startswith("**int8**\n\n- 2 of 20 layers stayed in float: 1 put back into float")
    assert "| cross-layer equalization | 3.32 → 3.02 % | +0.82 dB | ✓ kept | 12 |" in found
    assert (
        "| /conv1/Conv | Conv | 31.0 dB | **fp32**<br>put back into float to keep the drop within the limit |" in found
    )
    assert found.count("| /") == 8
    assert found.endswith(
        "**pruned-int8**\n\n- 0 of 20 layers stayed in float.\n\nCorrections: none was tried.\n\n"
        "Sensitivity: not measured — no layer was quantized alone."
    )


def test_a_layer_whose_name_is_a_script_stays_text(samples: ModuleType) -> None:
    text = render_markdown(samples.with_layer("<script>alert(1)</script>"))
    assert "<script" not in text
    assert text.count("| &lt;script&gt;alert(1)&lt;/script&gt; |") == 2


def test_text_of_users_is_escaped(samples: ModuleType) -> None:
    text = render_markdown(samples.hostile())
    assert "<script" not in text
    assert "@team" not in text
    assert "http://evil" not in text
    assert "\x1b" not in text


def test_escape() -> None:
    assert escape("a|b`c`*d*_e_[f](g)<h>\n#i @j k@ 2.5") == (
        r"a\|b\`c\`\*d\*\_e\_\[f\](g)&lt;h&gt; \#i @<!-- -->j k@ 2.5"
    )
