"""The report of an evaluation as one self-contained HTML page: no network, no script."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from simple_spk import __version__
from simple_spk.evaluation.metrics import prior_name
from simple_spk.io.atomic_file import write_text
from simple_spk.report import charts
from simple_spk.report.breakdown import MINIMUM_SPEAKERS, MINIMUM_TRIALS
from simple_spk.report.charts import DetectionCosts, chart_style, det_chart
from simple_spk.report.sections import ReportedList, list_section, measure, strip

FOLDER = Path(__file__).parent


def write_report(
    path: str | Path,
    lists: Sequence[ReportedList],
    costs: DetectionCosts | None = None,
    date: str | None = None,
) -> None:
    """Write the page, whole or not at all; equal arguments give equal bytes."""
    path = Path(path)
    if not lists:
        raise ValueError(f"no lists to report in {path}; expected at least one")
    costs = costs or DetectionCosts()
    priors = [prior_name(prior) for prior in costs.priors]
    with chart_style():
        sections = [list_section(number, one, costs) for number, one in enumerate(lists)]
        det = det_chart([one.curve for one in sections])
    text = rendered(
        "report.html.j2",
        title="Speaker verification: " + ", ".join(one.curve.name for one in sections),
        origin=_origin(lists, costs, date),
        priors=priors,
        min_dcfs=[f"minDCF({prior})" for prior in priors],
        act_dcfs=[f"actDCF({prior})" for prior in priors],
        intervals=next((one.intervals for one in lists if one.intervals), None),
        det=det,
        sections=sections,
    )
    write_text(path, text)


def rendered(template: str, *folders: Path, **values: Any) -> str:
    """A page from a template in one of ``folders`` or beside this file; values are escaped.

    Templates of other pages extend ``report.html.j2`` and replace its block "main".
    """
    environment = Environment(
        loader=FileSystemLoader([*folders, FOLDER]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.globals |= {
        "charts": charts,
        "isfinite": math.isfinite,
        "measure": measure,
        "minimum_speakers": MINIMUM_SPEAKERS,
        "minimum_trials": MINIMUM_TRIALS,
        "strip": strip,
    }
    return environment.get_template(template).render(values)


def _origin(
    lists: Sequence[ReportedList], costs: DetectionCosts, date: str | None
) -> dict[str, str]:
    """Where the scores come from, and what the costs mean."""
    scored = [one.scored for one in lists]
    thresholds = (f"{one.threshold:.4g}" for one in scored if one.threshold is not None)
    facts = {
        "Model": _distinct(one.model for one in scored),
        "Similarity": _distinct(one.similarity for one in scored),
        "Own threshold": _distinct(thresholds),
        "Target priors": ", ".join(map(prior_name, costs.priors)),
        "Costs": f"miss {costs.miss:g}, false alarm {costs.false_alarm:g}",
        "Software": f"simple_spk {__version__}",
    }
    return facts | ({"Date": date} if date else {})


def _distinct(texts: Iterable[str | None]) -> str:
    """The distinct texts in order, or that there are none."""
    return ", ".join(dict.fromkeys(text for text in texts if text)) or "not given"
