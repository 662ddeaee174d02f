"""A headless Chromium that is told what to do by its DevTools protocol."""

import base64
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """A tab of the browser."""

    def __init__(self, address: str) -> None:
        from websockets.sync.client import connect

        self.socket = connect(address, max_size=None)
        self.number = 0
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of the protocol; errors of the page are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(json.dumps(answer["params"]))

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        options = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        found = self.call("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        while not self.run(f"Boolean({script})"):
            time.sleep(0.1)

    def choose(self, selector: str, *files: Path) -> None:
        """Choose files in an input."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(file) for file in files])

    def press(self, key: str) -> None:
        """Press a key."""
        text = {"Enter": "\r", "Space": " "}.get(key)
        more = {"text": text} if text else {}
        code = {"Enter": 13, "Tab": 9, "ArrowRight": 39, "Space": 32}[key]
        name = {"Space": " "}.get(key, key)
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=name, code=key,
                windowsVirtualKeyCode=code, **(more if kind == "keyDown" else {}),
            )  # fmt: skip

    def look(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Set the size of the screen, and its colors."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        """Write what the page looks like, all of it."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(address: str, folder: Path, microphone: Path) -> Iterator[Page]:
    """A tab with a page, whose microphone is a wav file."""
    assert CHROMIUM is not None
    process = subprocess.Popen(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--remote-debugging-port=0", f"--user-data-dir={folder}",
            "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
            f"--use-file-for-fake-audio-capture={microphone}", "--remote-allow-origins=*",
            "about:blank",
        ],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        import httpx

        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        port = next(found[1] for line in lines if (found := re.search(r"127.0.0.1:(\d+)/", line)))
        tabs = httpx.get(f"http://127.0.0.1:{port}/json", timeout=None).json()
        page = Page(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
        page.call("Page.navigate", url=address)
        page.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        yield page
    finally:
        process.kill()
        process.communicate()
