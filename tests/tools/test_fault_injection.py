"""A failed file operation loses nothing: one of each kind in the fast commands.

The tool tries all operations, also those of train and prepare.
"""

import shutil
import sys

import pytest

from tools.fault_injection import main


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
@pytest.mark.parametrize("task", ["embed", "enroll", "export"])
def test_a_failed_operation_loses_nothing(task: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--sample", "1", "--tasks", task]) == 0, capfd.readouterr().out
    assert capfd.readouterr().out.count("| 1 | 1 | 0 |") == 3
