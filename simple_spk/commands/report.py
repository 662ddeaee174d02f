"""How commands show error rates."""

import json
from pathlib import Path


def report(metrics: dict, json_file: Path | None) -> None:
    """Print error rates, and write them all as JSON where asked."""
    if json_file is not None:
        json_file.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    if "eer" in metrics:
        costs = ", ".join(
            f"minDCF({prior}) {cost:.4f}" for prior, cost in metrics["min_dcf_by_prior"].items()
        )
        print(f"{metrics['trials']} trials: EER {metrics['eer']:.3f} %, {costs}")
    else:
        print(f"{metrics['trials']} trials scored; the list has no labels, so no error rates")
