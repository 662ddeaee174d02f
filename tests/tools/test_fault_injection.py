"""A failed file operation loses nothing: one of each command and kind; the tool tries all."""

import shutil
import sys

import pytest

from tools.fault_injection import TASKS, main


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
@pytest.mark.parametrize("task", TASKS)
def test_a_failed_operation_loses_nothing(task: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--sample", "1", "--tasks", task]) == 0, capfd.readouterr().out
    assert capfd.readouterr().out.count("| 1 | 1 | 0 |") == 3
