"""The report is self-contained, runs nothing, and shows the metrics it was given."""

import os
import re
from collections.abc import Sequence
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simple_spk.data.trials import Trials, read_trials, speakers_of_recordings
from simple_spk.evaluation.bootstrap import MetricOptions
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.report.breakdown import breakdown
from simple_spk.report.metadata import Metadata, read_metadata
from simple_spk.report.page import write_report
from simple_spk.report.sections import WORST_TRIALS, ReportedList

VOID = {"meta", "wbr"}
HOSTILE = "<script>alert('x')</script>\"&'><img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """A page as tags, texts by the tag around them, and identifiers."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        assert self.open == [], "every tag is closed"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def texts_of(self, *tags: str) -> list[str]:
        return [text for tag, text in self.texts if tag in tags]


def scored(
    scores: Sequence[float], is_target: Sequence[bool], name: str = "a list", prefix: str = ""
) -> ScoredTrials:
    """A scored list in which a recording of speaker i meets one of its own or of the next."""
    count = len(scores)
    labels = np.array(is_target, dtype=bool)
    ids = [f"{prefix}s{i}/0.wav" for i in range(count)] + [
        f"{prefix}s{i}/1.wav" for i in range(count)
    ]
    enroll = np.arange(count, dtype=np.int32)
    test = np.where(labels, enroll + count, (enroll + 1) % count).astype(np.int32)
    trials = Trials(ids, enroll, test, labels, Path(f"{name}.txt"), "0f" * 32)
    return ScoredTrials(trials, np.array(scores), name, "a model", "cosine", 0.25)


def random_scored(count: int = 3000, seed: int = 0, name: str = "a list") -> ScoredTrials:
    generator = np.random.default_rng(seed)
    is_target = np.arange(count) % 3 == 0
    return scored(generator.normal(3.0 * is_target - 1.0), is_target, name)


def reported(one: ScoredTrials, intervals: bool = False, metadata: bool = False) -> ReportedList:
    figures = summary(one.scores, one.trials.is_target)
    bounds = None
    if intervals:
        around = {"eer": [figures["eer"] - 0.5, figures["eer"] + 0.25]}
        bounds = around | {"min_dcf": {"0.01": [0.1234, 0.9876]}, "level": 0.95, "replicates": 700}
    found = None
    if metadata:
        keys = tuple(dict.fromkeys(name.split("/")[0] for name in one.trials.ids))
        columns = {
            "sex <b>": tuple("mf"[len(key) % 2] for key in keys),
            "age": tuple(str(20 + number % 50) for number in range(len(keys))),
        }
        speakers = speakers_of_recordings(one.trials)
        found = breakdown(one, Metadata(Path("m.csv"), keys, columns), speakers)
    return ReportedList(one, figures, bounds, found)


def page_of(path: Path, *lists: ReportedList, **options) -> str:
    write_report(path, lists, **options)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def full_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with everything: two lists, intervals, and conditions."""
    lists = [
        reported(random_scored(seed=seed, name=name), intervals=True, metadata=True)
        for seed, name in enumerate(("easy", "hard"))
    ]
    return page_of(tmp_path_factory.mktemp("page") / "r.html", *lists)


def test_the_page_stands_alone_and_runs_nothing(full_page):
    page = Page(full_page)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "base"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name == "src" for name in attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert "http:" not in full_page and "https:" not in full_page and "@import" not in full_page
    assert "default-src 'none'" in full_page
    assert len(full_page) < 1_000_000


def test_identifiers_are_unique_and_all_references_lead_somewhere(full_page):
    page = Page(full_page)
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    references = re.findall(r"url\(#([^)]*)\)", full_page)
    for _, attributes in page.tags:
        references += (attributes.get("aria-labelledby") or "").split()
        references += [
            attributes[name][1:] for name in ("href", "xlink:href") if name in attributes
        ]
    assert references and set(references) <= set(identifiers)


def test_every_chart_has_words_and_only_finite_numbers(full_page):
    page = Page(full_page)
    charts = [attributes for tag, attributes in page.tags if attributes.get("role") == "img"]
    assert len(charts) == 1 + 2 * 2  # the DET curves, and two charts per list
    assert len([text for text in page.texts_of("desc") if len(text) > 40]) == len(charts)
    drawn = [attributes.get("d", "") for tag, attributes in page.tags if tag == "path"]
    assert not any(re.search("nan|inf", path, re.IGNORECASE) for path in drawn)
    others = [a for tag, a in page.tags if tag == "svg" and a.get("role") != "img"]
    assert all(attributes.get("aria-hidden") == "true" for attributes in others)


def test_the_table_shows_the_summary_and_the_intervals(tmp_path):
    one = reported(random_scored(), intervals=True)
    cells = Page(page_of(tmp_path / "r.html", one)).texts_of("td", "span")
    figures = one.summary
    row = cells[cells.index("a list") :]
    assert row[1].replace("\u00a0", " ") == "3,000 trials, 33.3 % targets"
    assert row[2] == f"{figures['eer']:.3f}"
    assert row[3] == f"{figures['eer'] - 0.5:.3f} to {figures['eer'] + 0.25:.3f}"
    assert row[4:6] == [f"{figures['min_dcf']['0.01']:.4f}", "0.1234 to 0.9876"]
    values = [figures["min_dcf"]["0.05"], *figures["act_dcf"].values(), figures["cllr"]]
    assert row[6:11] == [f"{value:.4f}" for value in [*values, figures["min_cllr"]]]


def test_the_page_says_what_was_evaluated(full_page, tmp_path):
    facts = Page(full_page).texts_of("dd", "code", "h2")
    for fact in ("a model", "cosine", "0.25", "0.01, 0.05", "easy", "hard", "0f" * 32):
        assert fact in facts
    assert "700 resamplings" in full_page
    costs = MetricOptions(priors=(0.1,), miss_cost=10.0)
    one = random_scored()
    figures = summary(one.scores, one.trials.is_target, priors=(0.1,), miss_cost=10.0)
    text = page_of(tmp_path / "r.html", ReportedList(one, figures), costs=costs)
    assert "miss 10, false alarm 1" in text and "minDCF(0.1)" in text and "0.05)" not in text
    assert "No confidence intervals" in text


def test_what_is_wrong_with_a_list_is_shown(tmp_path):
    one = random_scored()
    hints = {"hint": "is this <Vox1-O>?", "intervals_missing": "one speaker only"}
    figures = summary(one.scores, one.trials.is_target) | hints
    shown = Page(page_of(tmp_path / "r.html", ReportedList(one, figures))).texts_of("p")
    assert set(hints.values()) <= set(shown)


def test_conditions_are_shown_or_named(tmp_path):
    one = reported(random_scored(), metadata=True)
    page = Page(page_of(tmp_path / "r.html", one))
    text = " ".join(text for _, text in page.texts)
    for column in one.breakdown.columns:
        assert column.name in page.texts_of("h3")
        for condition in column.conditions:
            assert condition.label in text
            if condition.eer is not None:
                assert f"{condition.eer:.3f}" in page.texts_of("td")


def test_hostile_names_are_only_text(tmp_path):
    one = scored([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], name=HOSTILE, prefix=HOSTILE)
    one = ScoredTrials(one.trials, one.scores, HOSTILE, HOSTILE, HOSTILE)
    text = page_of(tmp_path / "r.html", reported(one, metadata=True))
    tags = {tag for tag, _ in Page(text).tags}
    assert not tags & {"script", "img", "b"}
    assert "<script" not in text and text.count(unescape(HOSTILE)) == 0
    assert text.count("&lt;script&gt;") > 10


def test_the_worst_trials_as_by_sorting_all(tmp_path):
    one = random_scored(seed=4)
    ties = ScoredTrials(one.trials, one.scores.round(0), "ties")
    for each in (one, ties):
        names = Page(page_of(tmp_path / "r.html", reported(each))).texts_of("td", "span")
        labels = each.trials.is_target
        lows = sorted(np.flatnonzero(labels), key=lambda i: (each.scores[i], i))
        highs = sorted(np.flatnonzero(~labels), key=lambda i: (-each.scores[i], i))
        expected = []
        for index in [*lows[:WORST_TRIALS], *highs[:WORST_TRIALS]]:
            sides = each.trials.enroll[index], each.trials.test[index]
            expected += [f"{each.scores[index]:.4f}", *(each.trials.ids[side] for side in sides)]
        assert names[-len(expected) :] == expected


def test_the_same_arguments_give_the_same_bytes(tmp_path):
    one = reported(random_scored(), intervals=True, metadata=True)
    assert page_of(tmp_path / "a.html", one) == page_of(tmp_path / "b.html", one)
    assert not list(tmp_path.glob("*.partial"))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from([-1e6, -1.0, 0.0, 1e-9, 0.5, 0.5000001, 3.0, 1e6]), st.booleans()
        ),
        min_size=2,
        max_size=12,
    ).filter(lambda rows: 0 < sum(label for _, label in rows) < len(rows)),
    scale=st.sampled_from([1.0, 1e-320]),
    shift=st.sampled_from([0.0, 1e15]),
)
def test_any_list_of_two_classes_makes_a_page(rows, scale, shift, tmp_path_factory):
    """Scores may also be so close together that there are no numbers between them."""
    scores, labels = zip(*rows, strict=True)
    one = scored([scale * score + shift for score in scores], labels)
    text = page_of(tmp_path_factory.getbasetemp() / "any.html", reported(one))
    drawn = [attributes.get("d", "") for tag, attributes in Page(text).tags if tag == "path"]
    assert not any(re.search("nan|inf", path, re.IGNORECASE) for path in drawn)


def test_many_trials_and_lists_stay_a_small_file(tmp_path):
    lists = [reported(random_scored(30_000, seed, f"list {seed}")) for seed in range(8)]
    assert len(page_of(tmp_path / "r.html", *lists)) < 500_000


def test_lists_without_labels_are_refused(tmp_path):
    one = random_scored()
    bare = ScoredTrials(
        Trials(one.trials.ids, one.trials.enroll, one.trials.test), one.scores, "bare"
    )
    with pytest.raises(ValueError, match="bare has no labels"):
        write_report(tmp_path / "r.html", [ReportedList(bare, {})])
    with pytest.raises(ValueError, match="no lists"):
        write_report(tmp_path / "r.html", [])
    assert not list(tmp_path.iterdir())


def test_the_list_of_voxceleb_with_its_metadata(tmp_path):
    data = os.environ.get("SIMPLE_SPK_DATA")
    if not data:
        pytest.skip("SIMPLE_SPK_DATA does not name the folder with VoxCeleb's lists")
    trials = read_trials(Path(data, "voxceleb", "veri_test2.txt.gz"))
    scores = np.random.default_rng(0).normal(3.0 * trials.is_target)
    one = ScoredTrials(trials, scores, "Vox1-O (cleaned)")
    metadata = read_metadata(Path(data, "voxceleb", "vox1_meta.csv"))
    found = breakdown(one, metadata, speakers_of_recordings(trials))
    assert found.recordings_without_metadata == 0
    gender = next(column for column in found.columns if column.name == "Gender")
    assert [condition.label for condition in gender.conditions] == ["m-m", "f-f", "cross"]
    figures = summary(scores, trials.is_target)
    assert len(page_of(tmp_path / "r.html", ReportedList(one, figures, None, found))) < 200_000
