"""Laws of simple-spk export --push, against a stand-in for the Hugging Face Hub on this machine."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from simple_spk.inference.extractor import Extractor

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
EMBED = (
    "import sys; from simple_spk import Extractor; "
    "print(Extractor.load(sys.argv[1]).embed(sys.argv[2]).tobytes().hex())"
)


class Hub(ThreadingHTTPServer):
    """The few endpoints that a push and a download call; weights go by Git LFS.

    Everybody with the token "writer" owns owner/..., the token "reader" may not write.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.private: dict[str, bool] = {}
        self.files: dict[str, dict[str, bytes]] = {}
        self.objects: dict[str, bytes] = {}


class Answer(BaseHTTPRequestHandler):
    """One request to the stand-in."""

    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Keep the output of tests short."""

    def reply(self, content: object, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token != "writer":
            what = "the token is unknown" if token != "reader" else "the token only reads"
            return self.reply({"error": what}, 403 if token == "reader" else 401)
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            address = {"url": f"{self.server.address}/{name}"}
            if name in self.server.private:
                return self.reply({"error": "it exists", **address}, 409)
            self.server.private[name] = bool(
                asked.get("private") or asked.get("visibility") == "private"
            )
            self.server.files[name] = {}
            return self.reply(address)
        if path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\n"), "a card without metadata"
            return self.reply({"errors": [], "warnings": []})
        if match := re.fullmatch(r"/api/models/(.+?/.+?)/preupload/main", path):
            assert match[1] in self.server.files
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            return self.reply({"files": files})
        if path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.server.address}/put/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            return self.reply({"transfer": "basic", "objects": objects})
        if match := re.fullmatch(r"/api/models/(.+?/.+?)/commit/main", path):
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    self.server.files[match[1]][value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    content = self.server.objects[value["oid"]]
                    self.server.files[match[1]][value["path"]] = content
            address = f"{self.server.address}/{match[1]}/commit/{COMMIT}"
            return self.reply({"commitUrl": address, "commitOid": COMMIT, "success": True})
        return self.reply({"error": f"no endpoint {path}"}, 404)

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        oid = self.path.removeprefix("/put/")
        assert hashlib.sha256(content).hexdigest() == oid
        self.server.objects[oid] = content
        self.reply({})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if match := re.fullmatch(r"/(?:api/models/)?([^/]+/[^/]+)(?:/(.*))?", path):
            files = self.server.files.get(match[1])
            rest = match[2] or "revision/main"
            if files is not None and rest.startswith("revision/"):
                names = [{"rfilename": name} for name in files]
                return self.reply({"id": match[1], "sha": COMMIT, "siblings": names})
            if files is not None and rest.startswith("tree/"):
                rows = [
                    {"type": "file", "path": name, "size": len(content), "oid": _oid(content)}
                    for name, content in files.items()
                ]
                return self.reply(rows)
            name = rest.removeprefix(f"resolve/{COMMIT}/")
            if files is not None and name in files:
                etag = f'"{_oid(files[name])}"'
                return self.reply(files[name], ETag=etag, X_Repo_Commit=COMMIT)
        return self.reply({"error": f"nothing at {path}"}, 404)

    do_HEAD = do_GET  # noqa: N815


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def call(
    folder: Path, address: str, token: str | None, *arguments: object
) -> subprocess.CompletedProcess[str]:
    """Run python with arguments in a new process, whose Hub is at an address."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment = {
        **ours,
        "PYTHONPATH": str(ROOT),
        "HF_ENDPOINT": address,
        "HF_HOME": str(folder / "home"),  # no token of the user, no cache
        "HF_HUB_DISABLE_XET": "1",  # a storage of its own, which has no stand-in
        **({} if token is None else {"HF_TOKEN": token}),
    }
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment,
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=300,
    )


EXPORT = ("-m", "simple_spk.cli.main", "export")


def test_a_pushed_model_is_loaded_by_its_name(
    hub: Hub, model_folder: Path, recordings: list[Path], tmp_path: Path
) -> None:
    pushed = call(
        tmp_path, hub.address, "writer", *EXPORT, model_folder, "--push", "owner/voices-1.0"
    )
    assert pushed.returncode == 0, pushed.stderr
    address = f"{hub.address}/owner/voices-1.0/commit/{COMMIT}"
    assert pushed.stdout.splitlines()[-1] == f"pushed to {address}"
    assert hub.private == {"owner/voices-1.0": True}
    files = hub.files["owner/voices-1.0"]
    assert sorted(files) == ["README.md", "config.yaml", "model.safetensors"]
    loaded = call(tmp_path, hub.address, None, "-c", EMBED, "owner/voices-1.0", recordings[0])
    assert loaded.returncode == 0, loaded.stderr
    found = np.frombuffer(bytes.fromhex(loaded.stdout.split()[-1]), np.float32)
    assert np.array_equal(found, Extractor.load(model_folder).embed(recordings[0])[0])


def test_an_existing_repository_keeps_its_visibility_and_a_target_is_written_too(
    hub: Hub, model_folder: Path, tmp_path: Path
) -> None:
    push = (*EXPORT, model_folder, tmp_path / "copy", "--push", "owner/voices", "--public")
    assert call(tmp_path, hub.address, "writer", *push).returncode == 0
    assert hub.private == {"owner/voices": False}
    first = hub.files["owner/voices"].copy()
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    again = (*EXPORT, model_folder, "--push", "owner/voices", "--training-data", "Mine.")
    assert call(tmp_path, hub.address, "writer", *again).returncode == 0
    assert hub.private == {"owner/voices": False}
    assert b"Mine." in hub.files["owner/voices"]["README.md"]
    assert hub.files["owner/voices"]["model.safetensors"] == first["model.safetensors"]


@pytest.mark.parametrize(
    ("name", "token", "words"),
    [
        ("owner/voices", None, "no token to push owner/voices with: .* 'hf auth login' or .*TOKEN"),
        ("owner/voices", "wrong", "not pushed .*the token is unknown.*: use a token with write"),
        ("owner/voices", "reader", "was not pushed .*the token only reads.*repositories of owner"),
        ("voices", "writer", "'voices' is not a name on the Hugging Face Hub: expected owner/name"),
        ("owner/a/b", "writer", "'owner/a/b' is not a name"),
        ("owner/-x", "writer", "'owner/-x' is not a name"),
    ],
)
def test_a_refused_push_says_why_and_what_helps(
    name: str, token: str | None, words: str, hub: Hub, model_folder: Path, tmp_path: Path
) -> None:
    pushed = call(tmp_path, hub.address, token, *EXPORT, model_folder, "--push", name)
    assert pushed.returncode == 1
    assert re.search(f"simple-spk: error: .*{words}", pushed.stderr), pushed.stderr
    assert "Traceback" not in pushed.stderr and not hub.files


def test_a_hub_that_does_not_answer_is_named(model_folder: Path, tmp_path: Path) -> None:
    with Hub() as closed:
        address = closed.address
    push = (*EXPORT, model_folder, tmp_path / "copy", "--push", "owner/voices")
    pushed = call(tmp_path, address, "writer", *push)
    assert pushed.returncode == 1
    assert re.search(r"owner/voices was not pushed .*: check the network", pushed.stderr)
    assert "Traceback" not in pushed.stderr
    assert (tmp_path / "copy/model.safetensors").is_file()  # what was exported is kept
