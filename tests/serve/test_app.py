"""Every endpoint answers as the library does, and refuses what it cannot use with words."""

import json
import logging
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
from fastapi.testclient import TestClient

from simple_spk.data.audio import AudioError
from simple_spk.inference.decisions import Decision
from simple_spk.inference.extractor import Extractor
from simple_spk.serve.decoding import Decoders
from tests.serve.conftest import client_of, uploads
from tools.fuzzing import audio as fuzzing

Speakers = list[list[Path]]


def same(found: object, expected: object) -> None:
    """Equal as JSON, numbers up to rounding."""
    ours, theirs = _flat(found), _flat(json.loads(json.dumps(expected)))
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        is_float = isinstance(value, float)
        assert theirs[name] == (pytest.approx(value, rel=1e-6) if is_float else value), name


def _flat(value: object, name: str = "") -> dict[str, object]:
    if isinstance(value, dict):
        parts = [_flat(one, f"{name}.{key}") for key, one in value.items()]
    elif isinstance(value, list):
        parts = [_flat(one, f"{name}.{place}") for place, one in enumerate(value)]
    else:
        return {name: value}
    return {key: one for part in parts for key, one in part.items()}


def test_verify_answers_as_the_library(
    client: TestClient, extractor: Extractor, speakers: Speakers, tmp_path: Path
) -> None:
    first, second = speakers[0][0], tmp_path / "other rate.flac"
    samples, rate = soundfile.read(speakers[0][1])
    soundfile.write(second, samples, rate // 2)  # slower, but a file of another rate
    rule = {"prior": 0.2, "false_accept_rate": 0.01}
    files = uploads("first", first) + uploads("second", second, speakers[0][2])
    answer = client.post("/verify", files=files, data=rule)
    assert answer.status_code == 200, answer.text
    same(answer.json(), extractor.verify(first, [second, speakers[0][2]], **rule).plain())
    assert answer.json()["qualities"][1][0]["sample_rate"] == 8000


def test_embed_answers_as_the_library(
    client: TestClient, extractor: Extractor, speakers: Speakers
) -> None:
    answer = client.post("/embed", files=uploads("recordings", *speakers[1])).json()
    assert np.allclose(answer["embeddings"], extractor.embed(speakers[1]), atol=1e-5)
    assert answer["model"] == extractor.fingerprint


def test_speakers_are_enrolled_identified_and_verified_by_name(
    extractor: Extractor, speakers: Speakers
) -> None:
    known = Extractor(extractor.model)
    with client_of(Extractor(extractor.model)) as client:
        nobody = client.post("/identify", files=uploads("recordings", speakers[0][2]))
        assert nobody.status_code == 422 and "no voice is enrolled" in nobody.json()["detail"]
        for name, paths in zip(("Ann", "Bob Lee"), speakers, strict=True):
            files = uploads("recordings", *paths[:2])
            answer = client.post("/enroll", data={"name": name}, files=files).json()
            assert answer == {"name": name, **known.enroll(name, paths[:2]).plain()}
        assert [one["name"] for one in client.get("/voices").json()] == ["Ann", "Bob Lee"]
        answer = client.post("/identify", files=uploads("recordings", speakers[1][2]))
        same(answer.json(), known.identify(speakers[1][2]).plain())
        assert answer.json()["name"] == "Bob Lee"
        rate, files = {"false_accept_rate": 1e-9}, uploads("recordings", speakers[1][2])
        reason = client.post("/identify", data=rate, files=files).json()["reason"]
        assert "for a false-accept rate of 1e-09 / 2 (extrapolated: " in reason
        answer = client.post(
            "/verify", data={"name": "Ann"}, files=uploads("second", speakers[0][2])
        )
        same(answer.json(), known.verify(known.voices["Ann"], speakers[0][2]).plain())
        unknown = client.post(
            "/verify", data={"name": "x"}, files=uploads("second", speakers[0][2])
        )
        assert unknown.status_code == 404 and "nobody is enrolled as 'x'" in unknown.text
        # The checks of enrolling say which uploads are meant, and nothing of our folders.
        files = uploads("recordings", speakers[0][0])
        doubt = client.post("/enroll", data={"name": "Eve"}, files=files)
        assert doubt.status_code == 422 and "sounds like Ann" in doubt.json()["detail"]
        twice = client.post("/enroll", data={"name": "Eve"}, files=files + files)
        assert speakers[0][0].name in twice.json()["detail"] and "/" not in twice.json()["detail"]


def test_diarize_answers_as_the_library(
    client: TestClient, extractor: Extractor, speakers: Speakers, tmp_path: Path
) -> None:
    parts = [soundfile.read(path)[0] for pair in zip(*speakers, strict=True) for path in pair]
    meeting = tmp_path / "meeting.wav"
    soundfile.write(meeting, np.concatenate(parts), 16000, subtype="FLOAT")
    answer = client.post("/diarize", files=uploads("recording", meeting), data={"speakers": 2})
    expected = extractor.diarize(meeting, speakers=2).plain() | {"recording": "meeting.wav"}
    same(answer.json(), expected)


def test_the_page_and_its_description_come_from_here_alone(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    paths = {"/verify", "/embed", "/enroll", "/identify", "/diarize", "/voices", "/health"}
    assert paths | {"/metrics"} == set(schema["paths"])
    fields = schema["components"]["schemas"]["Decision"]["properties"]
    assert set(Decision._fields) | {"sureness"} == set(fields)
    text = client.get("/").text + client.get("/page.js").text
    assert "not for" in text and "https://" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in client.get("/").headers["content-security-policy"]
    assert client.get("/docs").status_code == 404


@pytest.mark.parametrize(
    ("path", "data", "files", "status", "words"),
    [
        ("/verify", {}, {"first": "good", "second": "empty"}, 422, "second.wav has 0 bytes"),
        ("/verify", {}, {"first": "text", "second": "good"}, 422, "first.wav holds text"),
        ("/verify", {}, {"first": "cut", "second": "good"}, 422, "first.wav promises"),
        ("/verify", {}, {"first": "good"}, 422, "second: Field required"),
        ("/verify", {}, {"second": "good"}, 422, "send recordings as first, or the name"),
        ("/verify", {"prior": 2}, {"first": "good", "second": "good"}, 422, "prior: "),
        ("/verify", {"name": "x" * 201}, {"second": "good"}, 422, "name: "),
        ("/embed", {}, {"recordings": "silent"}, 422, "recordings.wav is silent"),
        ("/embed", {}, {"recordings": "opposite"}, 422, "channels that cancel each other"),
        ("/embed", {}, {"recordings": "long"}, 422, "longer than the limit of 30 s"),
        ("/enroll", {"name": " "}, {"recordings": "good"}, 422, "a voice needs a name"),
        ("/enroll", {}, {"recordings": "good"}, 422, "name: Field required"),
        ("/enroll", {"name": "x"}, {"recordings": "short"}, 422, "cannot be enrolled"),
        ("/identify", {"top": 0}, {"recordings": "good"}, 422, "top: "),
        ("/identify", {"far": 0.01}, {"recordings": "good"}, 422, "'far' is no field of /identify"),
        ("/embed", {}, {"recording": "good"}, 422, "which has recordings"),
        ("/diarize", {"speakers": "many"}, {"recording": "good"}, 422, "speakers: "),
        ("/diarize", {"min_speakers": 3, "max_speakers": 2}, {"recording": "good"}, 422, "3"),
        ("/diarize", {}, {"recording": "text"}, 422, "recording.wav holds text, not audio"),
        ("/diarize", {}, {"recording": "silent"}, 422, "recording.wav has no speech"),
        ("/identify", {"false_accept_rate": 1}, {"recordings": "good"}, 422, "false_accept_rate: "),
        ("/nothing", {}, {"recording": "good"}, 404, "Not Found"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(
    strict: TestClient, bad: dict[str, bytes], path, data, files, status, words
) -> None:  # fmt: skip
    sent = [(name, (f"{name}.wav", bad[kind])) for name, kind in files.items()]
    answer = strict.post(path, data=data, files=sent)
    assert answer.status_code == status
    assert words in answer.json()["detail"]


def test_text_instead_of_a_file_is_named_by_its_field(strict: TestClient) -> None:
    """As curl sends without the @; of several values, too."""
    for path, field in (("/embed", "recordings"), ("/diarize", "recording")):
        answer = strict.post(path, files={field: (None, "a.wav")})
        assert answer.status_code == 422
        assert answer.json()["detail"] == f"{field}: send a file (curl: FIELD=@FILE)"


@pytest.fixture(scope="module")
def strict(extractor: Extractor):
    """A service of short recordings."""
    with client_of(Extractor(extractor.model), longest_seconds=30.0) as client:
        yield client


@pytest.fixture(scope="module")
def bad(speakers: Speakers, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A good recording, and bad ones."""
    folder = tmp_path_factory.mktemp("bad")
    good = speakers[0][0].read_bytes()
    samples = soundfile.read(speakers[0][0])[0]
    arrays = {
        "silent": np.zeros(16000),
        "long": np.tile(samples, 12),
        "short": samples[8000:12000],
        "opposite": np.stack([samples, -samples], 1),
    }
    for name, array in arrays.items():
        soundfile.write(folder / name, array, 16000, format="WAV")
    made = {name: (folder / name).read_bytes() for name in arrays}
    return made | {"good": good, "empty": b"", "text": b"words " * 99, "cut": good[:9999]}


def test_what_is_no_form_is_named(strict: TestClient) -> None:
    """As curl sends a file with --data-binary."""
    for kind in ("application/x-www-form-urlencoded", "application/json"):
        answer = strict.post("/embed", content=b"RIFF&" * 2000, headers={"content-type": kind})
        assert answer.status_code == 422 and "curl: -F FIELD=@FILE" in answer.json()["detail"]


def test_too_many_recordings_are_refused(client: TestClient, speakers: Speakers) -> None:
    answer = client.post("/identify", files=11 * uploads("recordings", speakers[0][0]))
    assert answer.status_code == 422 and "1 to 10 recordings, not 11" in answer.text


def test_damaged_uploads_are_answered(strict: TestClient, tmp_path: Path) -> None:
    (tmp_path / "originals").mkdir()
    fuzzing.write_originals(tmp_path / "originals")
    statuses = set()
    for number in range(40):
        path = tmp_path / f"mutant{number}"
        path = fuzzing.write_mutant(tmp_path / "originals", path, random.Random(number))
        answer = strict.post("/embed", files=uploads("recordings", path))
        statuses.add(answer.status_code)
        assert answer.status_code == 200 or answer.json()["detail"].startswith("mutant")
    assert statuses == {200, 422}
    assert strict.get("/health").json()["waiting"] == 0


def test_requests_at_once_have_the_answers_of_requests_alone(
    extractor: Extractor, speakers: Speakers
) -> None:
    with client_of(Extractor(extractor.model), places=32) as client:
        pairs = [(a, b) for a in speakers[0] for b in speakers[1]]

        def ask(pair: tuple[Path, Path]) -> dict:
            files = uploads("first", pair[0]) + uploads("second", pair[1])
            return client.post("/verify", files=files).json()

        def enroll(number: int) -> int:
            files = uploads("recordings", speakers[number % 2][0])
            return client.post("/enroll", data={"name": f"{number % 2}"}, files=files).status_code

        alone = [ask(pair) for pair in pairs]
        with ThreadPoolExecutor(24) as pool:
            enrolled = [pool.submit(enroll, number) for number in range(4)]
            together = list(pool.map(ask, pairs))
        assert [one["score"] for one in together] == [one["score"] for one in alone]
        # The same recording again is refused; so each speaker was enrolled once.
        assert sorted(one.result() for one in enrolled)[:2] == [200, 200]
        text = client.get("/metrics").text
    counted = {
        line.split()[0]: float(line.split()[1]) for line in text.splitlines() if "#" not in line
    }
    assert counted['simple_spk_requests_total{path="/verify",status="200"}'] == 2 * len(pairs)
    assert counted["simple_spk_batches_total"] < counted["simple_spk_batched_requests_total"]


def test_a_full_queue_says_when_to_come_again(extractor: Extractor, speakers: Speakers) -> None:
    with client_of(Extractor(extractor.model), places=0) as client:
        answer = client.post("/embed", files=uploads("recordings", speakers[0][0]))
    assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1


def test_the_log_has_neither_names_nor_files(
    client: TestClient, speakers: Speakers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    files = [("recordings", ("secret.wav", speakers[0][0].read_bytes()))]
    client.post("/enroll?who=Zoe", data={"name": "Zoe"}, files=files)
    client.post("/enroll", data={"name": "Zoe2"}, files=files)
    client.post("/embed", files=[("recordings", ("secret.wav", b"RIFF"))])
    ours = [one.getMessage() for one in caplog.records if not one.name.startswith("httpx")]
    assert any("/enroll 200" in line for line in ours)
    assert not any("secret" in line or "Zoe" in line for line in ours)


def test_decoding_ends_at_its_time_limit_and_survives_crashes(
    speakers: Speakers, tmp_path: Path
) -> None:
    decoders = Decoders(1, 16000, 600.0, 1e-4)
    (decoder,) = decoders._all
    source, target = speakers[0][0], tmp_path / "decoded.wav"
    try:
        with pytest.raises(AudioError, match=r"takes more than .* s to decode"):
            decoders.decode(source, target)
        decoder.limit_seconds = 1e6
        assert decoders.decode(source, target) == 16000
        expected = soundfile.read(source, dtype="float32")[0]
        assert (soundfile.read(target, dtype="float32")[0] == expected).all()
        decoder.process.kill()
        with pytest.raises(AudioError, match="cannot be decoded"):
            decoders.decode(source, target)
        assert decoders.decode(source, target) == 16000
    finally:
        decoders.close()
    assert decoder.process.poll() is not None
