"""Laws of batches: what is in them, how often, and that they can be made again."""

from collections import Counter
from collections.abc import Callable
from itertools import combinations, permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from simple_spk.data.samplers import Crop, SpeakerSampler

COUNTS = [1, 2, 3, 5, 8, 13, 21, 30]


def speakers_of(counts: list[int]) -> NDArray[np.int32]:
    """The speaker of each row, rows of all speakers mixed, where speaker i has counts[i] rows."""
    speakers = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return np.random.default_rng(0).permutation(speakers)


SPEAKER_OF_ROW = speakers_of(COUNTS)


def make(speakers: int = 4, recordings: int = 3, **options: object) -> SpeakerSampler:
    options = {"speaker_of_row": SPEAKER_OF_ROW, "batches_per_epoch": 40, "seed": 5} | options
    return SpeakerSampler(
        speakers_per_batch=speakers,
        recordings_per_speaker=recordings,
        **options,  # type: ignore[arg-type]
    )


def rows_by_speaker(batch: list[Crop]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for crop in batch:
        groups.setdefault(int(SPEAKER_OF_ROW[crop.row]), []).append(crop.row)
    return groups


@pytest.mark.parametrize("recordings", [1, 2, 4, 10])
@pytest.mark.parametrize("speakers", [1, 3, 7])
def test_a_batch_is_p_speakers_with_k_recordings(speakers: int, recordings: int) -> None:
    """Rows are distinct if there are enough, and otherwise all are used."""
    for batch in make(speakers, recordings):
        groups = rows_by_speaker(batch)
        assert len(groups) == speakers
        for speaker, rows in groups.items():
            assert len(rows) == recordings
            assert len(set(rows)) == min(recordings, COUNTS[speaker])


def test_one_crop_length_per_batch_from_the_whole_range() -> None:
    sampler = make(2, 1, crop_seconds=(3.0, 8.0), sample_rate=100, batches_per_epoch=4000)
    found = [{crop.samples for crop in batch} for batch in sampler]
    assert all(len(lengths) == 1 for lengths in found)
    counts = Counter(length for lengths in found for length in lengths)
    assert min(counts) == 300
    assert max(counts) == 800
    assert np.mean([length for (length,) in found]) == pytest.approx(550, abs=3 * 145 / 4000**0.5)


def test_positions_are_uniform() -> None:
    positions = [crop.position for batch in make(4, 3, batches_per_epoch=500) for crop in batch]
    histogram, _ = np.histogram(positions, bins=10, range=(0.0, 1.0))
    assert histogram.sum() == 6000
    assert chi_square(histogram, np.full(10, 600.0)) < 28  # probability 0.001 beyond it


def test_any_batch_can_be_made_again() -> None:
    """A batch is a function of seed, epoch and number, not of what was drawn before."""
    sampler = make()
    sampler.set_epoch(3)
    batches = list(sampler)
    other = make()
    list(other)
    other.set_epoch(3)
    assert other.batch(17) == batches[17]
    assert list(other) == batches
    assert len({tuple(batch) for batch in batches}) == len(batches)


def test_seeds_and_epochs_differ() -> None:
    found = set()
    for seed in range(3):
        for epoch in range(3):
            sampler = make(seed=seed)
            sampler.set_epoch(epoch)
            found.update(tuple(batch) for batch in sampler)
    assert len(found) == 9 * 40


def test_an_epoch_can_be_entered_in_its_middle() -> None:
    sampler = make()
    sampler.set_epoch(2)
    whole = list(sampler)
    assert len(whole) == len(sampler) == 40
    for first_batch in (1, 39, 40):
        sampler.set_epoch(2, first_batch)
        assert list(sampler) == whole[first_batch:]
    sampler.set_epoch(2)
    assert list(sampler) == whole


def chi_square(observed: NDArray, expected: NDArray) -> float:
    return float(((observed - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_a_single_speaker_is_drawn_by_weight(exponent: float) -> None:
    draws = 6000
    sampler = make(1, 1, count_exponent=exponent, minimum_recordings=1, batches_per_epoch=draws)
    speakers = [SPEAKER_OF_ROW[batch[0].row] for batch in sampler]
    weights = np.array(COUNTS) ** exponent
    expected = draws * weights / weights.sum()
    observed = np.bincount(speakers, minlength=len(COUNTS))
    assert chi_square(observed, expected) < 24.3  # 7 degrees of freedom: probability 0.001


def drawn_in_turn(weights: NDArray, speakers: int) -> dict[tuple[int, ...], float]:
    """The probability of each set of speakers drawn one by one by weight, without replacement."""
    probability: Counter[tuple[int, ...]] = Counter()
    for order in permutations(range(len(weights)), speakers):
        chance, left = 1.0, weights.sum()
        for speaker in order:
            chance, left = chance * weights[speaker] / left, left - weights[speaker]
        probability[tuple(sorted(order))] += chance
    return dict(probability)


def test_several_speakers_are_drawn_one_by_one_by_weight() -> None:
    draws, counts = 6000, [2, 2, 9, 16, 25]
    speaker_of_row = speakers_of(counts)
    sampler = make(3, 1, speaker_of_row=speaker_of_row, batches_per_epoch=draws)
    observed = Counter(
        tuple(sorted(int(speaker_of_row[crop.row]) for crop in batch)) for batch in sampler
    )
    expected = drawn_in_turn(np.sqrt(counts), 3)
    assert set(observed) <= set(expected)
    found = np.array([observed[group] for group in expected])
    # 10 sets, 9 degrees of freedom: probability 0.001
    assert chi_square(found, draws * np.array(list(expected.values()))) < 27.9


def test_all_subsets_of_recordings_are_equally_likely() -> None:
    speaker_of_row = np.zeros(6, dtype=np.int32)
    sampler = make(1, 3, speaker_of_row=speaker_of_row, batches_per_epoch=4000)
    observed = Counter(tuple(sorted(crop.row for crop in batch)) for batch in sampler)
    subsets = list(combinations(range(6), 3))
    assert set(observed) == set(subsets)
    found = np.array([observed[subset] for subset in subsets])
    assert chi_square(found, np.full(20, 200.0)) < 43.8  # 19 degrees of freedom


def test_what_exceeds_a_speakers_recordings_is_drawn_evenly() -> None:
    """Each of 3 recordings once, and 2 more of any."""
    speaker_of_row = np.zeros(3, dtype=np.int32)
    sampler = make(1, 5, speaker_of_row=speaker_of_row, batches_per_epoch=3000)
    rows = np.bincount([crop.row for batch in sampler for crop in batch])
    assert rows.sum() == 15000
    assert chi_square(rows - 3000, np.full(3, 2000.0)) < 13.8


@pytest.mark.parametrize("minimum", [1, 2, 5])
def test_speakers_with_few_recordings_are_left_out(minimum: int) -> None:
    sampler = make(3, 2, minimum_recordings=minimum, batches_per_epoch=600)
    seen = {speaker for batch in sampler for speaker in rows_by_speaker(batch)}
    assert seen == {speaker for speaker, count in enumerate(COUNTS) if count >= minimum}


def test_an_epoch_covers_the_rows_about_once_unless_told_otherwise() -> None:
    usable = sum(count for count in COUNTS if count >= 2)
    assert len(make(4, 3, batches_per_epoch=None)) == usable // 12
    assert len(make(7, 300, batches_per_epoch=None)) == 1


def test_gaps_in_the_numbers_of_speakers_do_not_matter() -> None:
    """A part of a manifest keeps the labels of the whole."""
    speaker_of_row = np.array([9, 2, 9, 2, 9], dtype=np.int32)
    for batch in make(2, 2, speaker_of_row=speaker_of_row):
        assert Counter(int(speaker_of_row[crop.row]) for crop in batch) == {2: 2, 9: 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speakers": 8}, r"speakers_per_batch is 8, but only 7"),
        ({"speakers": 5, "minimum_recordings": 8}, r"5, but only 4 .* 8 recordings"),
        ({"crop_seconds": (8.0, 3.0)}, r"crop_seconds .*8\.0, 3\.0"),
        ({"crop_seconds": (0.0, 3.0)}, r"crop_seconds .*0\.0, 3\.0"),
        ({"speakers": 0}, "speakers_per_batch"),
        ({"recordings": 0}, "recordings_per_speaker"),
    ],
)
def test_impossible_batches_raise(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.fixture
def as_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Makes the sampler believe that it is one of several processes."""

    def pretend(rank: int, world_size: int) -> None:
        monkeypatch.setattr("simple_spk.data.samplers.rank", lambda: rank)
        monkeypatch.setattr("simple_spk.data.samplers.world_size", lambda: world_size)

    return pretend


@pytest.mark.parametrize("world_size", [2, 3, 6])
def test_processes_share_the_batch_of_one(
    world_size: int, as_process: Callable[[int, int], None]
) -> None:
    expected = list(make(6, 3))
    shares = []
    for rank in range(world_size):
        as_process(rank, world_size)
        sampler = make(6, 3)
        assert len(sampler) == len(expected)
        shares.append(list(sampler))
    for number, batch in enumerate(expected):
        parts = [share[number] for share in shares]
        assert {len(part) for part in parts} == {18 // world_size}
        assert sorted(crop for part in parts for crop in part) == sorted(batch)
        speakers = [set(rows_by_speaker(part)) for part in parts]
        assert sum(map(len, speakers)) == len(set.union(*speakers)) == 6


def test_speakers_that_processes_cannot_share_raise(
    as_process: Callable[[int, int], None],
) -> None:
    as_process(0, 4)
    with pytest.raises(ValueError, match=r"6 must be a multiple .* 4"):
        make(6, 3)


def test_many_speakers_are_drawn_like_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draw that does not look at all speakers has the distribution of the one that does."""
    monkeypatch.setattr("simple_spk.data.samplers.FEW_CLASSES", 0)
    monkeypatch.setattr("simple_spk.data.samplers.LARGEST_SHARE", 2.0)
    test_several_speakers_are_drawn_one_by_one_by_weight()
    for batch in make(7, 1):  # all that there are
        assert len(rows_by_speaker(batch)) == 7


def test_a_speaker_who_outweighs_all_others_does_not_hold_up_a_batch() -> None:
    """Drawn with replacement, the others would come up once in millions of draws."""
    counts = [100_000, *([2] * 100)]
    speaker_of_row = speakers_of(counts)
    sampler = make(4, 2, speaker_of_row=speaker_of_row, count_exponent=2.0, batches_per_epoch=3)
    for batch in sampler:
        speakers = {int(speaker_of_row[crop.row]) for crop in batch}
        assert len(speakers) == 4 and 0 in speakers


@pytest.mark.parametrize("few", [0, 1000])
def test_each_speed_is_another_speaker(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simple_spk.data.samplers.FEW_CLASSES", few)
    monkeypatch.setattr("simple_spk.data.samplers.LARGEST_SHARE", 2.0)
    speeds = [1.0, 0.9, 1.1]
    voices: Counter[tuple[int, float]] = Counter()
    for batch in make(4, 2, speeds=speeds, batches_per_epoch=2000, count_exponent=0.0):
        assert len({crop.label for crop in batch}) == 4
        for crop in batch:
            speaker = int(SPEAKER_OF_ROW[crop.row])
            assert crop.label == speaker + len(COUNTS) * speeds.index(crop.speed)
            voices[speaker, crop.speed] += 1
    assert len(voices) == 7 * 3  # one speaker has too few recordings
    assert min(voices.values()) > 0.8 * max(voices.values())


def test_without_other_speeds_the_label_is_the_speaker() -> None:
    for batch in make():
        assert all(crop.label == SPEAKER_OF_ROW[crop.row] and crop.speed == 1.0 for crop in batch)


def test_stages_begin_at_their_epochs() -> None:
    sampler = make(
        crop_seconds={1: [1.0, 2.0], 3: [5.0, 6.0]},
        speeds={1: [1.0, 0.9], 3: [1.0]},
        sample_rate=10,
    )
    for epoch, lengths, speeds in (
        (1, (10, 20), {1.0, 0.9}),
        (2, (10, 20), {1.0, 0.9}),
        (3, (50, 60), {1.0}),
    ):
        sampler.set_epoch(epoch)
        crops = [crop for batch in sampler for crop in batch]
        assert all(lengths[0] <= crop.samples <= lengths[1] for crop in crops)
        assert {crop.speed for crop in crops} == speeds


def test_every_crop_has_a_seed_of_its_own() -> None:
    seeds = [crop.seed for batch in make() for crop in batch]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("speeds", [[], [0.9], [1.0, 1.0], [1.0, 3.0], {2: [1.0]}])
def test_impossible_speeds_raise(speeds: object) -> None:
    with pytest.raises(ValueError, match="speeds must"):
        make(speeds=speeds)


def test_speakers_left_out_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    make(minimum_recordings=4)
    assert "3 of 8 speakers have fewer than 4 recordings" in caplog.text


def test_recordings_of_a_speaker_are_of_different_sessions() -> None:
    """Sessions as likely as each other, recordings of one too; rows are in no order."""
    random = np.random.default_rng(1)
    session_of_row = np.where(SPEAKER_OF_ROW == 7, random.integers(0, 4, len(SPEAKER_OF_ROW)), 9)
    sampler = make(1, 3, session_of_row=session_of_row, count_exponent=5.0, batches_per_epoch=4000)
    speaker_of_batch = [SPEAKER_OF_ROW[batch[0].row] for batch in sampler]
    assert speaker_of_batch.count(7) > 1000 and {5, 6} < {*speaker_of_batch}
    rows: Counter[int] = Counter()
    for batch, speaker in zip(sampler, speaker_of_batch, strict=True):
        drawn = [crop.row for crop in batch]
        assert {SPEAKER_OF_ROW[row] for row in drawn} == {speaker} and len({*drawn}) == 3
        if speaker == 7:
            assert len({session_of_row[row] for row in drawn}) == 3
            rows.update(drawn)
    own = np.flatnonzero(SPEAKER_OF_ROW == 7)
    assert {*rows} == {*own.tolist()}
    of_session = Counter(
        {s: int(sum(rows[row] for row in own[session_of_row[own] == s])) for s in range(4)}
    )
    found = np.array([of_session[s] for s in range(4)])
    # drawn without replacement, so the spread is below that of independent draws
    assert chi_square(found, np.full(4, found.sum() / 4)) < 16.3
