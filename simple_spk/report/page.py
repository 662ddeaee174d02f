"""The report of an evaluation as one self-contained HTML page: no network, no script."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment, FileSystemLoader

from simple_spk import __version__
from simple_spk.evaluation.bootstrap import MetricOptions
from simple_spk.evaluation.metrics import prior_name
from simple_spk.io.atomic_file import write_text
from simple_spk.report import breakdown, charts
from simple_spk.report.charts import chart_style, det_chart
from simple_spk.report.sections import ReportedList, list_section, strip

FOLDER = Path(__file__).parent


def write_report(
    path: str | Path, lists: Sequence[ReportedList], costs: MetricOptions | None = None
) -> None:
    """Write the page, whole or not at all; equal arguments give equal bytes."""
    path = Path(path)
    if not lists:
        raise ValueError(f"no lists to report in {path}; expected at least one")
    costs = costs or MetricOptions()
    priors = [prior_name(prior) for prior in costs.priors]
    with chart_style():
        sections = [list_section(number, one, costs) for number, one in enumerate(lists)]
        det = det_chart([one.curve for one in sections])
    text = rendered(
        "report.html.j2",
        title="Speaker verification: " + ", ".join(one.curve.name for one in sections),
        costs=costs,
        version=__version__,
        priors=priors,
        min_dcfs=[f"minDCF({prior})" for prior in priors],
        act_dcfs=[f"actDCF({prior})" for prior in priors],
        intervals=next((one.intervals for one in lists if one.intervals), None),
        thresholds=[
            f"{one.scored.threshold:.4g}" for one in lists if one.scored.threshold is not None
        ],
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
        undefined=ChainableUndefined,  # a metric without an interval has none under any key
    )
    environment.globals |= {"breakdown": breakdown, "charts": charts, "strip": strip}
    return environment.get_template(template).render(values)
