"""The speakers and files of public corpora, as they are downloaded.

speechocean762 (OpenSLR 101) and LibriSpeech (OpenSLR 12) hold sentences, with a split into training
and test speakers; the others hold isolated words, whose file names contain the speaker.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class SpeakerFiles(NamedTuple):
    """The files of one speaker, sorted by name."""

    speaker: str
    files: list[Path]
    is_test: bool


class CorpusFiles(NamedTuple):
    """The speakers of a corpus, sorted by name, and the audio files with names of other forms.

    ``recording_seconds`` is how long recordings of joined words get, None if the files are
    sentences. ``folders_are_sessions``: a file's folder is its session, else none is known.
    """

    name: str
    speakers: list[SpeakerFiles]
    unmatched: list[Path]
    noises: Sequence[Path] = ()
    recording_seconds: float | None = None
    folders_are_sessions: bool = False


class WordCorpus(NamedTuple):
    """A corpus of words; ``pattern`` finds the speaker in the last parts of a file's path.

    ``noise_folder`` holds noises, which are not speech.
    """

    name: str
    prefix: str
    pattern: str
    example: str
    origin: str
    first_test_speaker: int | None = None
    hides_speakers: bool = False
    recording_seconds: float = 5.5
    noise_folder: str | None = None


AUDIOMNIST = WordCorpus(
    name="audiomnist",
    prefix="am",
    pattern=r"(?:^|/)(?P<speaker>\d\d)/\d_(?P=speaker)_\d+\.wav$",
    example="data/01/7_01_23.wav (digit, speaker, take)",
    origin="github.com/soerenab/AudioMNIST",
    first_test_speaker=41,
)
DSPSPEECH20 = WordCorpus(
    name="dspspeech20",
    prefix="ds",
    pattern=r"(?:^|/)(?P<speaker>\w+)/(?P=speaker)-\d\d-\d\d\.wav$",
    example="speech_data/16307130194/16307130194-12-16.wav (speaker, word, take)",
    origin="github.com/zhongyuchen/DSPSpeech-20",
    hides_speakers=True,  # they are students' numbers
)
ARABIC_COMMANDS = WordCorpus(
    name="arabic_sc",
    prefix="ar",
    pattern=r"/(?P<speaker>\d{8})_NO_\d\d\.wav$",
    example="dataset/backward/00000001_NO_01.wav (word, speaker, take)",
    origin="github.com/abdulkaderghandoura/arabic-speech-commands-dataset",
)
SPEECH_COMMANDS = WordCorpus(
    name="speech_commands",
    prefix="sc",
    pattern=r"/(?P<speaker>[0-9a-f]{8})_nohash_\d+\.wav$",
    example="backward/0a2b400e_nohash_0.wav (word, speaker, take)",
    origin="storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
    recording_seconds=5.0,  # words have one second
    noise_folder="_background_noise_",
)
LIBRISPEECH_NAME = re.compile(r"/(?P<speaker>\d+)/(?P<chapter>\d+)/(?P=speaker)-(?P=chapter)-\d+$")


def find_words(folder: str | Path, corpus: WordCorpus) -> CorpusFiles:
    """The words of each speaker of a corpus, at any depth below the folder."""
    folder = _existing(folder, corpus.name, corpus.origin)
    words = defaultdict(list)
    unmatched, noises = [], []
    for path in sorted(folder.rglob("*.wav")):
        match = re.search(corpus.pattern, f"/{path.relative_to(folder).as_posix()}")
        if path.parent.name == corpus.noise_folder:
            noises.append(path)
        elif match is None:
            unmatched.append(path)
        else:
            words[match["speaker"]].append(path)
    if not words:
        raise ValueError(
            f"{folder} does not hold {corpus.name}: {len(unmatched)} wav files were found, none of "
            f"which is named as in {corpus.example}; download it from {corpus.origin}"
        )
    first_test = corpus.first_test_speaker
    speakers = [
        SpeakerFiles(
            corpus.prefix + (_hidden(speaker) if corpus.hides_speakers else speaker),
            files,
            is_test=first_test is not None and int(speaker) >= first_test,
        )
        for speaker, files in sorted(words.items())
    ]
    return CorpusFiles(corpus.name, speakers, unmatched, noises, corpus.recording_seconds)


def find_librispeech(folder: str | Path) -> CorpusFiles:
    """The sentences of each speaker of LibriSpeech's parts; those of test-* are test speakers."""
    origin = "openslr.org/12"
    folder = _existing(folder, "librispeech", origin).resolve()
    roots = [folder, folder / "LibriSpeech"]  # what the archives unpack to
    parts = [path for root in roots for path in sorted(root.glob("*-*")) if path.is_dir()]
    if re.match(r"(train|dev|test)-", folder.name):
        parts = [folder]
    parts = [path for path in parts if re.match(r"(train|dev|test)-", path.name)]
    files = defaultdict(list)
    parts_of = defaultdict(set)
    unmatched = []
    for part in parts:
        for path in sorted(part.rglob("*.flac")):
            match = LIBRISPEECH_NAME.search(f"/{path.relative_to(part).with_suffix('').as_posix()}")
            if match is None:
                unmatched.append(path)
            else:
                files[match["speaker"]].append(path)
                parts_of[match["speaker"]].add(part.name.partition("-")[0])
    if not files:
        raise ValueError(
            f"{folder} does not hold librispeech: no file is named as in train-clean-100/19/198/"
            f"19-198-0000.flac (part, speaker, chapter); download it from {origin}"
        )
    both = sorted(name for name, found in parts_of.items() if "test" in found and len(found) > 1)
    if both:
        raise ValueError(f"{folder}: {len(both)} speakers are in test-* and elsewhere: {both[0]}")
    speakers = [
        SpeakerFiles(f"lb{speaker}", paths, parts_of[speaker] == {"test"})
        for speaker, paths in sorted(files.items())
    ]
    return CorpusFiles("librispeech", speakers, unmatched, folders_are_sessions=True)


def find_speechocean762(folder: str | Path) -> CorpusFiles:
    """The sentences of each speaker of speechocean762, with the corpus's own split."""
    folder = _existing(folder, "speechocean762", "openslr.org/101")
    inner = folder / "speechocean762"  # what the archive unpacks to
    root = inner if inner.is_dir() else folder
    speakers = []
    for part in ("train", "test"):
        speaker_of = _read_kaldi_table(root / part / "utt2spk")
        files = defaultdict(list)
        for utterance, place in _read_kaldi_table(root / part / "wav.scp").items():
            if place.endswith("|") or utterance not in speaker_of:
                raise ValueError(
                    f"{root / part / 'wav.scp'}: {utterance} is {place!r}; expected the path of a "
                    f"recording, and its speaker in {root / part / 'utt2spk'}"
                )
            files[speaker_of[utterance]].append(root / place)
        speakers += [
            SpeakerFiles("so" + speaker.removeprefix("SPEAKER"), sorted(paths), part == "test")
            for speaker, paths in files.items()
        ]
    return CorpusFiles("speechocean762", sorted(speakers), [])


def _read_kaldi_table(path: Path) -> dict[str, str]:
    """From the first word of each line of a Kaldi table to the rest of the line."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: speechocean762 holds train/ and test/ with wav.scp and utt2spk, "
            f"and WAVE/; download it from openslr.org/101"
        )
    table = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split(maxsplit=1)
        if len(fields) != 2:
            raise ValueError(f"{path}, line {number}: found {line!r}; expected two fields")
        table[fields[0]] = fields[1].strip()
    return table


def _existing(folder: str | Path, name: str, origin: str) -> Path:
    """The folder as a path, checked to exist."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder at {folder} for {name}: download it from {origin}")
    return folder


def _hidden(speaker: str) -> str:
    """A stable name that does not reveal the speaker."""
    return hashlib.sha256(speaker.encode()).hexdigest()[:8]
