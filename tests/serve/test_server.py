"""The real process: many clients at once, slow and huge ones, and a clean end."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.command_line import run
from tests.serve.conftest import uploads

ROOT = Path(__file__).parents[2]


class Server:
    """A running simple-spk serve."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder / "temporary"
        self.folder.mkdir()
        environment = os.environ | {"TMPDIR": str(self.folder), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "simple_spk.cli.main", "serve", "--port", str(self.port)]
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [*command, *options], env=environment, stderr=self.log, stdout=self.log
        )
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=None)
        while True:
            try:
                self.client.get("/health").raise_for_status()
                return
            except httpx.ConnectError:
                assert self.process.poll() is None, self.text()
                time.sleep(0.2)

    def text(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(one) for one in path.read_text().split()]


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Server]:
    """A server that is ended in any case."""
    server = Server(folder, *options)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        server.log.close()


def test_many_clients_are_served_and_the_end_is_clean(
    tmp_path: Path, speakers: list[list[Path]]
) -> None:
    with running(tmp_path, "--places", "40", "--rate", "1e6") as server:
        files = uploads("first", speakers[0][0]) + uploads("second", speakers[1][0])

        def ask(_number: int) -> int:
            return server.client.post("/verify", files=files).status_code

        with ThreadPoolExecutor(32) as pool:
            assert Counter(pool.map(ask, range(64))) == {200: 64}
        with ThreadPoolExecutor(80) as pool:  # more than places: some are sent away, none waits
            counts = Counter(pool.map(ask, range(160)))
            assert set(counts) <= {200, 503} and counts[200] >= 40
            children = server.children()
            late = [pool.submit(ask, number) for number in range(8)]
            while server.client.get("/health").json()["waiting"] == 0:
                assert not all(one.done() for one in late), "nothing ran when it was ended"
            server.process.send_signal(signal.SIGTERM)
            results = [one.exception() or one.result() for one in late]
        assert server.process.wait() == 0, server.text()
        # What ran was finished; what came later found nobody.
        assert 200 in results
        assert all(one == 200 or isinstance(one, httpx.TransportError) for one in results)
        assert "/ (0 voices in memory; end with Ctrl-C)" in server.text()
        assert "Traceback" not in server.text() and speakers[0][0].name not in server.text()
        assert list(server.folder.glob("simple_spk_*")) == []
        assert children and not any(Path(f"/proc/{child}").exists() for child in children)


def test_slow_and_huge_clients_do_not_take_it_down(
    tmp_path: Path, speakers: list[list[Path]]
) -> None:
    limits = ("--upload-seconds", "3", "--most-megabytes", "1", "--rate", "1e6")
    with running(tmp_path, *limits) as server:
        start = b"POST /embed HTTP/1.1\r\nHost: localhost\r\n"
        form = b"Content-Type: multipart/form-data; boundary=b\r\n"
        part = b'--b\r\nContent-Disposition: form-data; name="recordings"; filename="a"\r\n\r\n'

        def talk(*parts: bytes) -> bytes:
            """What the server answers until it closes the connection."""
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                try:
                    for one in parts:
                        connection.sendall(one)
                except OSError:
                    pass  # closed meanwhile
                answer = b""
                try:
                    while block := connection.recv(4096):
                        answer += block
                except ConnectionError:
                    pass
                return answer

        chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
        with ThreadPoolExecutor(5) as pool:
            slow_body = pool.submit(
                talk, start + form + b"Content-Length: 99999\r\n\r\n" + part, b"x"
            )
            slow_head = pool.submit(talk, start)
            opened = start + form + b"Transfer-Encoding: chunked\r\n\r\n"
            opened += f"{len(part):x}\r\n".encode() + part + b"\r\n"
            endless = pool.submit(talk, opened, *([chunk] * 64))
            nonsense = start + form + b"Transfer-Encoding: chunked\r\n\r\n"
            wrong = pool.submit(talk, nonsense, *([chunk] * 64))
            huge = pool.submit(talk, start + form + b"Content-Length: 99999999999\r\n\r\n")
            assert b" 408 " in slow_body.result().splitlines()[0]
            assert b" 413 " in huge.result().splitlines()[0]
            for status, answer in ((b" 413 ", endless.result()), (b" 400 ", wrong.result())):
                assert not answer or status in answer.splitlines()[0]  # or the connection is reset
            assert slow_head.result() == b""
        assert b" 400 " in talk(b"nonsense\r\n\r\n").splitlines()[0]
        good = server.client.post("/embed", files=uploads("recordings", speakers[0][0]))
        assert good.status_code == 200
        statuses = re.findall(r"/embed (\d+)", server.text())
        assert "500" not in statuses and "Traceback" not in server.text()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "simple_spk.cli.main", "serve", "--port", port]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert "choose another --port" in ended.stderr


def test_a_port_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for port in ("0", "65536"):
        assert run("serve", "--port", port) == 1
        assert f"--port must be 1 to 65535, not {port}" in capsys.readouterr().err
