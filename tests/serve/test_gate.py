"""Keys, scopes, rates and other sites: refused before anything is read."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException

from simple_spk.inference.extractor import Extractor
from simple_spk.serve.gate import Limits
from simple_spk.serve.keys import KeyFile, add_key, read_keys, remove_key
from tests.command_line import Capture, fails_naming, run
from tests.serve.conftest import client_of, uploads


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def with_key(key: str) -> dict[str, dict[str, str]]:
    """The header of a key."""
    return {"headers": {"Authorization": f"Bearer {key}"}}


def test_a_key_is_for_its_scopes_and_until_it_is_removed(
    extractor: Extractor, speakers: list[list[Path]], keys: Path
) -> None:
    verifier = add_key(keys, "door", ["verify"])
    manager = add_key(keys, "office", ["enroll", "voices"])
    limits = Limits(KeyFile(keys), hosts=None, requests_per_minute=1e6)
    pair = uploads("first", speakers[0][0]) + uploads("second", speakers[0][1])
    mine = {"data": {"name": "Ann"}, "files": uploads("recordings", speakers[0][0])}
    with client_of(Extractor(extractor.model), limits) as client:
        assert client.get("/health").json()["needs_key"] is True
        assert client.get("/").status_code == 200
        for path in ("/verify", "/embed", "/enroll", "/identify", "/diarize"):
            answer = client.post(path)
            assert answer.status_code == 401 and "Bearer" in answer.headers["www-authenticate"]
        assert client.get("/voices").status_code == client.get("/metrics").status_code == 401
        wrong = client.get("/voices", **with_key(manager + "x"))
        assert wrong.status_code == 401 and "misspelled" in wrong.json()["detail"]
        assert client.post("/verify", files=pair, **with_key(verifier)).status_code == 200
        refused = client.post("/enroll", **mine, **with_key(verifier))
        assert refused.status_code == 403 and "not for enroll" in refused.json()["detail"]
        assert client.post("/enroll", **mine, **with_key(manager)).status_code == 200
        assert client.post("/verify", files=pair, **with_key(manager)).status_code == 403
        assert client.get("/voices", **with_key(manager)).json()[0]["name"] == "Ann"
        remove_key(keys, "office")
        assert client.get("/voices", **with_key(manager)).status_code == 401


def test_the_file_has_no_key_in_it(keys: Path) -> None:
    key = add_key(keys, "one", ["verify"])
    other = add_key(keys, "two", ["verify"])
    assert key != other and len(key) > 40
    assert key not in keys.read_text() and keys.stat().st_mode & 0o077 == 0
    keys.with_name("copy").write_text(keys.read_text())
    copy = KeyFile(keys.with_name("copy"))
    assert copy.find(key) and not copy.find(key + " ")
    copy.path.unlink()
    assert copy.find(key) is None  # nobody may use it, rather than everybody
    assert KeyFile(keys).find(key) == ("one", frozenset({"verify"}))


@pytest.mark.parametrize(
    "text", ["", "[]", '{"keys": {"a": {}}}', '{"keys": {"a": {"sha256": "", "scopes": ["all"]}}}']
)
def test_a_file_that_is_none_is_named(keys: Path, text: str) -> None:
    keys.write_text(text)
    with pytest.raises(ValueError, match="is not a file of API keys"):
        read_keys(keys)


def test_requests_come_back_at_a_steady_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    limits = Limits(requests_per_minute=6)
    for _ in range(6):
        limits.check_rate("a")
    with pytest.raises(HTTPException) as refusal:
        limits.check_rate("a")
    assert refusal.value.status_code == 429 and refusal.value.headers == {"Retry-After": "10"}
    limits.check_rate("b")  # others have their own
    now = 9.9
    with pytest.raises(HTTPException):
        limits.check_rate("a")
    now = 20.1
    limits.check_rate("a")


@pytest.fixture(scope="module")
def local(extractor: Extractor) -> Iterator[TestClient]:
    """A service without keys on this computer."""
    limits = Limits(requests_per_minute=5, upload_bytes=1000)
    with client_of(Extractor(extractor.model), limits) as client:
        yield client


def test_pages_of_other_sites_may_not_use_it(local: TestClient) -> None:
    ours = {"host": "localhost:8000"}
    assert local.get("/health").status_code == 403  # testserver
    assert local.get("/health", headers=ours).status_code == 200
    sites = {"http://localhost:8000": 200, "http://evil.org": 403, "null": 403, "http://[": 400}
    for origin, status in sites.items():
        answer = local.get("/health", headers={**ours, "origin": origin})
        assert answer.status_code == status


def test_large_uploads_and_many_requests_are_refused(local: TestClient) -> None:
    headers = {"host": "127.0.0.1"}
    files = {"recordings": ("a.wav", bytes(2000))}
    answer = local.post("/embed", files=files, headers=headers)
    assert answer.status_code == 413 and "at most 0.001 MB" in answer.json()["detail"]
    parts = iter([b"x" * 800, b"x" * 800])  # of unknown length
    form = {**headers, "content-type": "multipart/form-data; boundary=b"}
    assert local.post("/embed", content=parts, headers=form).status_code == 413
    statuses = [local.get("/voices", headers=headers) for _ in range(6)]
    assert statuses[-1].status_code == 429 and int(statuses[-1].headers["retry-after"]) <= 12
    text = local.get("/health", headers=headers)
    assert text.status_code == 200  # not limited


def test_the_command_makes_and_removes_keys(keys: Path, capsys: Capture) -> None:
    made = ("serve", "--keys", keys, "--add-key", "door")
    assert run(*made, "--scopes", "verify", "identify") == 0
    assert capsys.readouterr().out.startswith("spk_")
    assert json.loads(keys.read_text())["keys"]["door"]["scopes"] == ["identify", "verify"]
    fails_naming(capsys, "has a key named 'door'", *made)
    fails_naming(capsys, "not open", "serve", "--keys", keys, "--add-key", "x", "--scopes", "open")
    fails_naming(capsys, "no key named 'x'", "serve", "--keys", keys, "--remove-key", "x")
    fails_naming(capsys, "--keys", "serve", "--add-key", "x")
    assert run("serve", "--keys", keys, "--remove-key", "door") == 0
    fails_naming(capsys, "others could use the server", "serve", "--host", "0.0.0.0")
    fails_naming(capsys, "--rate must be at least 1, not 0.5", "serve", "--rate", "0.5")
    fails_naming(capsys, "no file of API keys", "serve", "--keys", keys.with_name("none"))
