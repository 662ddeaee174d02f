"""Laws of the files that face data comes in: what was written is read, and nothing is executed."""

import os
import pickle
import resource
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from recipes.Face.lfw_bin import read_validation_bin
from recipes.Face.recordio import (
    MAGIC,
    RecordFile,
    image_records,
    read_record_index,
    unpack_record,
)
from tools.write_records import face_records, record, write_records

PAIRS = ([b"\xff\xd8one", b"\xff\xd8two", b"3", bytes(range(256))], [True, False])


def write(path, content, protocol=4):
    path.write_bytes(pickle.dumps(content, protocol))
    return path


# ---- pickles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", ["bytes", "bytearrays", "arrays", "numpy labels"])
def test_a_bin_file_is_read_as_it_was_pickled(tmp_path, protocol, kind):
    images, labels = PAIRS
    written = {
        "bytes": (images, labels),
        "bytearrays": ([bytearray(image) for image in images], labels),
        "arrays": ([np.frombuffer(image, dtype=np.uint8) for image in images], labels),
        "numpy labels": (images, list(np.array(labels))),
    }[kind]
    if kind == "bytearrays" and protocol < 5:
        pytest.skip("no bin file holds bytearrays of old protocols")
    path = write(tmp_path / "lfw.bin", written, protocol)
    pairs = read_validation_bin(path)
    assert pairs.images == images
    assert pairs.is_same.tolist() == labels


def test_a_bin_file_of_python_2_is_read(tmp_path):
    # what Python 2 wrote for (['\xff\xd8a', 'b'], [True])
    path = tmp_path / "lfw.bin"
    path.write_bytes(b"\x80\x02]q\x00(U\x03\xff\xd8aq\x01U\x01bq\x02e]q\x03\x88a\x86q\x04.")
    pairs = read_validation_bin(path)
    assert pairs.images == [b"\xff\xd8a", b"b"]
    assert pairs.is_same.tolist() == [True]


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_executes_nothing(tmp_path, protocol):
    trap = tmp_path / "trap"
    for content in (
        Malicious(trap),
        ([Malicious(trap), b"b"], [True]),
        ([b"a"] * 2, [Malicious(trap)]),
    ):
        path = write(tmp_path / "evil.bin", content, protocol)
        with pytest.raises(ValueError, match=r"evil\.bin"):
            read_validation_bin(path)
        assert not trap.exists()
    pickle.loads(path.read_bytes())
    assert trap.exists(), "the trap works, so not to fall into it means something"


def test_a_refused_call_is_named(tmp_path):
    path = write(tmp_path / "evil.bin", Malicious("x"))
    with pytest.raises(ValueError, match=rf"it calls {os.mkdir.__module__}\.mkdir, which is not"):
        read_validation_bin(path)


LATIN1 = b"c_codecs\nencode\nq\x00X\xc8\x00\x00\x00%bq\x01X\x06\x00\x00\x00latin1q\x02" % (
    200 * b"a"
)


def nested(levels: int) -> bytes:
    """A pickle of a tuple with 2 ** levels leaves."""
    return b"".join(b"\x94h%c\x86" % level for level in range(levels))


@pytest.mark.parametrize(
    "content, message",
    [
        # 2 ** 80 leaves as a label, as an image, as a shape and as a key of a dict
        (b"]]" + b")" + nested(80) + b"a\x86.", "instead of true or false"),
        (b"]" + b")" + nested(80) + b"a]\x86.", "an image is a tuple"),
        (b"}" + b")" + nested(80) + b"Ns.", "EMPTY_DICT is not allowed"),
        (b"\x8f(" + b")" + nested(80) + b"\x90.", "EMPTY_SET is not allowed"),
        # sizes that are only claimed
        (b"\x8e\xff\xff\xff\xff\xff\x00\x00\x00abc.", "huge.bin"),
        (b"N\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", "huge.bin"),
        (b"Nr\xff\xff\xff\x7f.", "the memo index 2147483647 is not allowed"),
        # few bytes that are copied often
        (LATIN1 + b"](" + 99 * b"h\x00h\x01h\x02\x86R" + b"e.", "repeats its bytes"),
        (b"](" + b"C\xff" + 255 * b"a" + b"\x94" + 9999 * b"h\x00" + b"e]\x86.", "far more bytes"),
        # attributes of a function, and a call of what is no function
        (b"c_codecs\nencode\n(NNtb.", "huge.bin"),
        (b"cnumpy\nndarray\n)R.", "huge.bin"),
        (b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.", "it calls builtins.eval"),
        (b"(X\x01\x00\x00\x001ibuiltins\neval\n.", "INST is not allowed"),
    ],
)
def test_a_small_file_cannot_hang_or_fill_the_memory(tmp_path, content, message):
    path = tmp_path / "huge.bin"
    path.write_bytes(b"\x80\x04" + content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=message):
        read_validation_bin(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "KiB"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_truncated_bin_file_is_an_error_at_every_byte(tmp_path, protocol):
    whole = pickle.dumps(PAIRS, protocol)
    path = tmp_path / "cut.bin"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"cut\.bin"):
            read_validation_bin(path)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damage_is_an_error_or_other_data_and_never_anything_else(tmp_path_factory, data):
    whole = bytearray(pickle.dumps(PAIRS, data.draw(st.integers(0, 5))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "damaged.bin"
    path.write_bytes(whole)
    try:
        read_validation_bin(path)
    except ValueError as error:
        assert "damaged.bin" in str(error)


@pytest.mark.parametrize(
    "content, message",
    [
        (([b"a", b"b", b"c"], [True]), "3 images for 1 pairs"),
        (([], []), "0 images for 0 pairs"),
        (([b"a", "text"], [True]), "a str instead of bytes"),
        (([b"a", b"b"], [2]), "instead of true or false"),
        (([np.zeros((4, 4, 3), np.uint8), b"b"], [True]), "shape"),
        (([np.zeros(4, np.float32), b"b"], [True]), "other numbers than bytes"),
        ("nothing of the kind", "not a validation set"),
        ({"a": 1}, "EMPTY_DICT"),
    ],
)
def test_other_content_is_named(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_validation_bin(write(tmp_path / "other.bin", content))


# ---- records ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 2**20), min_size=1, max_size=3),
            st.lists(st.sampled_from([b"a", b"bcd", MAGIC, bytes(4), b"\x0a"]), max_size=9),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_records_are_read_as_they_were_written(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("records") / "train.rec"
    contents = [(tuple(map(float, labels)), b"".join(content)) for labels, content in written]
    write_records(path, [record(*one) for one in contents])
    file, index = RecordFile(path), read_record_index(path.with_suffix(".idx"))
    assert [tuple(file.read(int(offset))) for offset in index.offsets] == contents
    assert [file.read_labels(int(offset)) for offset in index.offsets] == [c[0] for c in contents]


def test_images_are_told_from_the_lists_behind_them(tmp_path):
    images = [(0.0, b"zero"), (0.0, b"null"), (7.0, b"seven")]
    path = write_records(tmp_path / "train.rec", face_records(images))
    file = RecordFile(path)
    chosen = image_records(file, read_record_index(path.with_suffix(".idx")))
    assert chosen.keys.tolist() == [1, 2, 3]
    found = [file.read(int(offset)) for offset in chosen.offsets]
    assert [(one.labels[0], one.content) for one in found] == images


def test_a_truncated_record_file_is_an_error_at_every_byte(tmp_path):
    data = record((3.0,), b"image" + bytes(3) + MAGIC + b"rest!")
    path = write_records(tmp_path / "train.rec", [data])
    whole = path.read_bytes()
    unpadded = len(whole) - (-len(b"rest!") % 4)
    assert RecordFile(path).read(0).content.endswith(b"rest!")
    for size in range(unpadded):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"train\.rec, byte"):
            RecordFile(path).read(0)


def test_wrong_offsets_and_headers_are_named(tmp_path):
    path = write_records(tmp_path / "train.rec", [record((1.0,), b"abcd"), record((2.0,), b"x")])
    file = RecordFile(path)
    for offset in (-4, 2, 4, 10**12):
        with pytest.raises(ValueError, match=f"byte {offset}"):
            file.read(offset)
    with pytest.raises(ValueError, match="no header"):
        unpack_record(b"short", "here")
    with pytest.raises(ValueError, match="labels, which are not there"):
        unpack_record(struct.pack("<IfQQ", 9, 0, 0, 0), "here")
    (tmp_path / "train.idx").write_text("0\t0\n0\t44\n")
    with pytest.raises(ValueError, match="the key 0 twice"):
        read_record_index(tmp_path / "train.idx")
    for text in ("", "0\t0\n1", "zero\t0"):
        (tmp_path / "train.idx").write_text(text)
        with pytest.raises(ValueError, match=r"train\.idx"):
            read_record_index(tmp_path / "train.idx")


class Contents(Dataset):
    def __init__(self, path):
        self.file, self.index = RecordFile(path), read_record_index(path.with_suffix(".idx"))
        self.file.read(0)  # opened before the workers are made

    def __len__(self):
        return len(self.index.keys)

    def __getitem__(self, row):
        return self.file.read(int(self.index.offsets[row])).content


def test_workers_of_a_loader_read_records_side_by_side(tmp_path):
    contents = [str(number).encode() * (number + 1) for number in range(200)]
    path = write_records(tmp_path / "train.rec", [record((1.0,), content) for content in contents])
    loader = DataLoader(Contents(path), batch_size=None, num_workers=2)
    assert list(loader) == contents
    assert pickle.loads(pickle.dumps(loader.dataset.file)).read(0).content == b"0"
