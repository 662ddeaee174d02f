"""The page in a real browser, with a microphone that plays a file."""

from pathlib import Path

import pytest

from tests.serve.browser import CHROMIUM, Page, browser
from tests.serve.test_server import running

TITLE = "document.querySelector('#answer h2').textContent"
READY = f"!document.querySelector('#answer').hidden && {TITLE} !== 'Listening …'"


def answer(page: Page, form: str) -> str:
    """The words of the answer to a form."""
    page.run(f"document.querySelector('#{form} .send').click()")
    page.wait(READY)
    return page.run("document.querySelector('#answer').innerText")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (apt install chromium)")
def test_the_page_records_verifies_enrolls_identifies_and_diarizes(
    tmp_path: Path, speakers: list[list[Path]]
) -> None:
    (same, *more), (other, *_) = speakers
    with (
        running(tmp_path, "--voices", str(tmp_path / "voices.db")) as server,
        browser(f"http://localhost:{server.port}/", tmp_path / "profile", same) as page,
    ):
        page.look(390, 844, dark=True)
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        assert "A recording is missing" in answer(page, "verify")
        # The microphone plays a recording of the same speaker.
        page.run("document.querySelector('#verify [data-name=first] .record').click()")
        page.wait("/[4-9] s/.test(document.querySelector('[data-name=first] .record').textContent)")
        page.run("document.querySelector('#verify [data-name=first] .record').click()")
        page.wait("document.querySelector('#verify [data-name=first] li')")
        page.choose("#verify [data-name=second] input[type=file]", more[0])
        words = answer(page, "verify")
        assert words.startswith("Same speaker") and "times likelier from one speaker" in words
        assert "An estimate, not a proof" in words
        # By the keyboard to the next tab, which has the focus.
        page.run("document.querySelector('#tab-verify').focus()")
        page.press("ArrowRight")
        assert page.run("document.activeElement.id") == "tab-enroll"
        assert page.run("!document.querySelector('#enroll').hidden")
        page.run("document.querySelector('#enroll [name=name]').value = '<b>Ann</b>'")
        page.choose("#enroll input[type=file]", same, more[0])
        assert answer(page, "enroll").startswith("<b>Ann</b> is enrolled")
        page.run("document.querySelector('#tab-identify').click()")
        page.choose("#identify input[type=file]", more[1])
        page.run("document.querySelector('#identify select').value = '0.01'")
        words = answer(page, "identify")
        assert words.startswith("<b>Ann</b>") and "for a false-accept rate of 0.01." in words
        assert "times likelier from one speaker" in words
        page.run("document.querySelector('#tab-diarize').click()")
        page.choose("#diarize input[type=file]", other)
        words = answer(page, "diarize")
        assert "1 speaker" in words and page.run("document.querySelectorAll('#answer rect').length")
        page.choose("#diarize input[type=file]", Path(__file__))
        assert "holds text, not audio" in answer(page, "diarize")
        errors = [one for one in page.complaints if '"level": "error"' in one]
        assert all("422" in one for one in errors), errors  # the last one, which was refused
        assert not [one for one in page.complaints if "exceptionDetails" in one]
