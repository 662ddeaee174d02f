"""Anytime verification: each answer is that of the same samples offline, and it ends when sure."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from simple_spk.inference.extractor import Extractor
from simple_spk.serve.gate import Limits
from simple_spk.serve.keys import KeyFile, add_key
from tests.serve.conftest import client_of


@pytest.fixture(scope="module")
def known(extractor: Extractor, speakers: list[list[Path]]) -> Extractor:
    found = Extractor(extractor.model)
    found.enroll("Ann", speakers[0][:2])
    return found


@pytest.fixture(scope="module")
def client(known: Extractor) -> Iterator[TestClient]:
    with client_of(known) as found:
        yield found


def samples(path: Path) -> np.ndarray:
    return soundfile.read(path, dtype="int16")[0]


def stream(client: TestClient, waveform: np.ndarray, step: int, **start: Any) -> list[dict]:
    """The answers to chunks of so many samples, each of which is awaited."""
    answers = []
    with client.websocket_connect("/stream") as socket:
        socket.send_json(start)
        assert socket.receive_json()["sample_rate"] == 16000
        for place in range(0, len(waveform), step):
            socket.send_bytes(waveform[place : place + step].tobytes())
            if min(step, len(waveform) - place) < step:
                break
            answers.append(socket.receive_json())
            if answers[-1]["done"]:
                return answers
        socket.send_json({"end": True})
        while not (answers and answers[-1]["done"]):
            answers.append(socket.receive_json())
    return answers


def test_streaming_equals_the_offline_answer_on_the_same_samples(
    client: TestClient, known: Extractor, speakers: list[list[Path]]
) -> None:
    waveform = samples(speakers[0][2])
    never = {"name": "Ann", "sure": 1e9, "prior": 0.3}
    answers = stream(client, waveform, 8000, **never)
    assert len(answers) >= -(-len(waveform) // 8000)  # after each chunk
    assert answers[-1]["seconds"] == len(waveform) / 16000
    for answer in answers:
        heard = waveform[: round(answer["seconds"] * 16000)]
        offline = known.verify(known.voices["Ann"], heard, 16000, prior=0.3)
        for name in ("score", "log_likelihood_ratio", "probability", "threshold"):
            assert answer[name] == pytest.approx(getattr(offline, name), abs=1e-4)
        assert answer["accepted"] == offline.accepted
        assert answer["missing"] and not answer["is_sure"]
    assert "more of speech" in answers[0]["missing"]
    assert "to accept, or of" in answers[-1]["missing"]


def test_it_ends_early_when_sure(client: TestClient, speakers: list[list[Path]]) -> None:
    for speaker, accepted in ((0, True), (1, False)):
        waveform = np.tile(samples(speakers[speaker][2]), 5)
        last = stream(client, waveform, 4000, name="Ann")[-1]
        assert last["is_sure"] and last["done"] and last["missing"] is None
        assert last["accepted"] is accepted and last["seconds"] < 0.7 * len(waveform) / 16000


def test_silence_is_no_evidence(client: TestClient) -> None:
    answer = stream(client, np.zeros(16000, np.int16), 20000, name="Ann")[-1]
    assert answer["score"] is None and not answer["is_sure"] and "speech" in answer["missing"]
    (answer,) = stream(client, np.zeros(0, np.int16), 1, name="Ann")
    assert "nothing was heard" in answer["missing"]


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("{", "the first message is a JSON object"),
        ("[]", "the first message is a JSON object"),
        ("{}", "the first message is a JSON object"),
        ('{"name": "Ann", "far": 1}', "unknown: far"),
        ('{"name": "Ann", "prior": 1.5}', "strictly between 0 and 1"),
        ('{"name": "Ann", "sure": 0.5}', "at least 1"),
        ('{"name": "Ann", "key": 5}', "name and key must be text"),
        (f'{{"name": "Ann", "prior": 1{"0" * 400}}}', "too large to convert to float"),
        ('{"name": "Zoe"}', "nobody is enrolled as 'Zoe'"),
    ],
)
def test_a_wrong_start_is_named(client: TestClient, first: str, words: str) -> None:
    with client.websocket_connect("/stream") as socket:
        socket.send_text(first)
        assert words in socket.receive_json()["error"]
        with pytest.raises(WebSocketDisconnect) as end:
            socket.receive_json()
    assert end.value.code == 1008


def test_a_client_may_leave_at_any_moment(client: TestClient, speakers: list[list[Path]]) -> None:
    with client.websocket_connect("/stream") as socket:
        socket.send_text(json.dumps({"name": "Ann"}))
        socket.receive_json()
        socket.send_bytes(samples(speakers[0][2]).tobytes())
    with client.websocket_connect("/stream"):
        pass
    assert client.get("/health").status_code == 200


def test_streams_need_the_scope_verify_and_the_own_site(known: Extractor, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    listing, verifying = add_key(keys, "a", ["voices"]), add_key(keys, "b", ["verify"])
    limits = Limits(KeyFile(keys), hosts=None, requests_per_minute=1e6)
    with client_of(known, limits) as client:
        for key, words in (("", "needs an API key"), (listing, "not for verify")):
            with client.websocket_connect("/stream") as socket:
                socket.send_json({"name": "Ann", "key": key})
                assert words in socket.receive_json()["error"]
        with client.websocket_connect("/stream") as socket:
            socket.send_json({"name": "Ann", "key": verifying})
            assert socket.receive_json()["sample_rate"] == 16000
        evil = {"origin": "http://evil.org"}
        with (
            pytest.raises(WebSocketDisconnect),
            client.websocket_connect("/stream", headers=evil) as socket,
        ):
            socket.receive_json()
