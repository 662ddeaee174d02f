"""tools/bench.py: all benchmarks in one file, resumed, and the comparison of two such files."""

import json

import pytest

from tools import bench


@pytest.fixture
def run(monkeypatch, capfd):
    """Run the command with arguments; its exit code and what it printed."""
    monkeypatch.setattr(bench, "NAMES", ["codecs"])

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["bench.py", *map(str, arguments)])
        return bench.main(), capfd.readouterr().out

    return run


def test_all_goes_on_where_it_was_stopped(run, tmp_path, monkeypatch):
    path = tmp_path / "new.json"
    code, _ = run("all", "--json", path)
    first = json.loads(path.read_text())["codecs"]
    assert code == 0 and first["commit"] == bench.commit() and first["rows"]
    monkeypatch.setattr(bench, "commit", lambda: "a")
    for past, is_kept in (("a", True), ("another", False)):
        path.write_text(json.dumps({"codecs": first | {"commit": past}, "old": {}}))
        _, printed = run("all", "--json", path)
        assert ("has it" in printed) is is_kept
        found = json.loads(path.read_text())
        assert "old" in found and found["codecs"]["commit"] == (
            past if is_kept else first["commit"]
        )
    monkeypatch.setattr(bench, "commit", lambda: "a-dirty")
    path.write_text(json.dumps({"codecs": first | {"commit": "a-dirty"}}))
    assert "has it" not in run("all", "--json", path)[1], "files may have changed again"


def test_changes_are_those_of_measurements_beyond_the_limit():
    old = [{"what": "ours", "queue": 10, "seconds": 1.0, "MiB": ""}]
    assert bench.changes(old, [{"what": "ours", "queue": 10, "seconds": 1.04, "MiB": ""}]) == []
    assert bench.changes(old, [{"what": "ours", "queue": 20, "seconds": 9.0, "MiB": ""}]) == []
    (row,) = bench.changes(old, [{"what": "ours", "queue": 10, "seconds": 0.5, "MiB": ""}])
    assert row["measure"] == "seconds" and row["change, %"] == -50


def test_compare_names_what_only_one_file_has(run, tmp_path):
    assert run("compare", tmp_path / "no.json", tmp_path / "no.json")[0] == 1
    result = {"commit": "a", "rows": [{"what": "ours", "seconds": 1.0}]}
    (tmp_path / "old.json").write_text(json.dumps({"loss": result, "gone": result}))
    slower = result | {"commit": "b", "rows": [{"what": "ours", "seconds": 2.0}, {"what": "new"}]}
    (tmp_path / "new.json").write_text(json.dumps({"loss": slower}))
    _, printed = run("compare", tmp_path / "old.json", tmp_path / "new.json")
    assert "loss, a to b: 1 changed" in printed and "| ours | seconds | 1 | 2 | 100 |" in printed
    assert "1 rows only in one of the files" in printed
    assert "only in one of the files: gone" in printed
