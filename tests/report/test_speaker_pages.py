"""Pages about speakers hold what was found; names cannot break out of them."""

import base64
import hashlib
import re
from html import unescape
from pathlib import Path

from simple_spk.report.speaker_pages import clusters_page, timeline_page

EVIL = '<script>alert("x")</script>'


def conversation():
    turns = [(0.0, 1.5, EVIL), (2.0, 3.0, "Bob"), (70.0, 71.0, EVIL)]
    return {
        "recording": "a.wav",
        "seconds": 80.0,
        "speech_detector": "energy",
        "overlap": "not handled",
        "speakers": [
            {"speaker": EVIL, "seconds": 2.5, "turns": 2},
            {"speaker": "Bob", "seconds": 1.0, "turns": 1},
        ],
        "turns": [dict(zip(("start", "end", "speaker"), turn, strict=True)) for turn in turns],
    }


def test_a_timeline_has_all_turns_and_only_its_own_script():
    page = timeline_page(conversation(), Path("/data/a #1.wav"), Path("/data/pages/a.html"))
    assert page.count("<rect ") == page.count("<button ") == 3 and "1:10" in page
    assert 'src="../a%20%231.wav"' in page and "http" not in page.replace("http-equiv", "")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1 and EVIL in unescape(page)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "not handled" in page and "71 %" in page.replace("&nbsp;", " ")
    assert "prefers-color-scheme: dark" in page


def test_a_page_of_clusters_shows_doubtful_recordings_first():
    sure = {"id": EVIL, "path": "b/x.wav", "evidence": 5.0, "other": "", "doubtful": False}
    weak = {"id": "w.wav", "path": "w.wav", "evidence": 0.2, "other": "S2", "doubtful": True}
    groups = [{"speaker": "S1", "recordings": [sure, weak]}]
    page = clusters_page(groups, Path("page.html"), {"Recordings": "2"})
    assert "<script" not in page and page.count("w.wav</td>") == 2
    assert page.index("Doubtful recordings") < page.index("<h2>Speakers</h2>")
    assert 'src="b/x.wav"' in page and "http" not in page.replace("http-equiv", "")
    sure_only = clusters_page([{"speaker": "S1", "recordings": [sure]}], Path("p.html"), {})
    assert "<h2>Doubtful" not in sure_only
