"""Other work on the CPUs is noticed; our own isn't taken for it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from evaluators.contention import OtherWork, share, warning

SPIN = "import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass"


def test_share_is_what_neither_we_nor_idleness_account_for():
    assert share(busy=6.0, own=2.0, seconds=4.0, cpus=2) == pytest.approx(0.5)
    assert share(busy=2.0, own=2.1, seconds=4.0, cpus=2) == 0.0
    assert share(busy=2.0, own=0.0, seconds=0.0, cpus=2) == 0.0


def test_our_own_children_are_not_others():
    with OtherWork() as quiet:
        subprocess.run([sys.executable, "-c", SPIN], check=True)
    child = subprocess.Popen([sys.executable, "-c", SPIN])
    with OtherWork() as mixed:  # a child that hasn't ended counts as others
        time.sleep(1.0)
    child.wait()
    assert mixed.share is not None
    assert quiet.share is not None
    assert mixed.share > quiet.share


def test_the_warning_has_the_share():
    assert warning(0.05) == ""
    assert warning(None) == ""
    assert "Other processes used 42% of the CPUs" in warning(0.42)
