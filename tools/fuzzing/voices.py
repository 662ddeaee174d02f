"""Files of enrolled voices, and those of versions before 0.2."""

import json
import random
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from simple_spk.inference.voice_stores.addresses import open_voices
from simple_spk.inference.voice_stores.speaker_store import FORMAT, SpeakerStore
from simple_spk.inference.voice_stores.voice import KINDS, Voice
from tools.fuzzing.mutations import (
    BYTE_DAMAGES,
    ODD_NUMBERS,
    Damage,
    odd_field,
    write_damaged,
)

FINGERPRINT = "model"


def write_originals(folder: Path) -> None:
    """Files of no, one and three voices in both formats."""
    generator = np.random.default_rng(0)
    for count in (0, 1, 3):
        voices = SpeakerStore(FINGERPRINT)
        for name in ("Ada", "Bea ü", "Cy")[:count]:
            voices.add(name, Voice(generator.standard_normal(192, np.float32), count, 3.5))
        voices.save(folder / f"{count}.db")
        names = json.dumps(list(voices))
        metadata = {"format": FORMAT, "fingerprint": FINGERPRINT, "names": names}
        now = voices.snapshot()
        arrays = {kind: np.ascontiguousarray(getattr(now, kind)) for kind in KINDS}
        save_file(arrays, folder / f"{count}.safetensors", metadata)


def change_header(content: bytes, dice: random.Random) -> bytes:
    """Change a number or a word of a safetensors header, and correct its length."""
    length = int.from_bytes(content[:8], "little")
    header, rest = content[8 : 8 + length], content[8 + length :]
    if dice.random() < 0.5:
        header = odd_field(header, dice)
    else:
        try:
            fields = json.loads(header)
        except (ValueError, RecursionError):  # of an earlier damage
            return content
        if not isinstance(fields, dict):
            return content
        name = dice.choice([name for name in fields if name != "__metadata__"] or ["none"])
        entry = fields.get(name, {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]})
        value = dice.choice(("dtype", "shape", "data_offsets"))
        entry[value] = {
            "dtype": dice.choice(("F64", "I64", "BF16", "F8_E4M3", "BOOL", "C64", "F4", "x", 3)),
            "shape": [dice.choice(ODD_NUMBERS) for _ in range(dice.randrange(4))],
            "data_offsets": [dice.choice(ODD_NUMBERS), dice.choice((0, *ODD_NUMBERS))],
        }[value]
        fields[dice.choice((name, "other"))] = entry
        header = json.dumps(fields).encode()
    return len(header).to_bytes(8, "little") + header + rest


DAMAGES: tuple[Damage, ...] = (*BYTE_DAMAGES, change_header, change_header, change_header)


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged file of voices."""
    return write_damaged(originals, place, dice, DAMAGES)


def read(path: Path) -> None:
    """Load the voices, enroll one of them once more, and search it."""
    voices = open_voices(path, FINGERPRINT, lambda embeddings: 2 * embeddings)
    for name, voice in list(voices.each())[:1]:
        voices.add(name, voice)
        assert np.isfinite(voices[name].embedding).all()
        (hits,) = voices.search(voice.embedding[None], 2)
        assert np.isfinite(hits.scores).all()
