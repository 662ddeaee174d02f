"""Error rates, metrics, intervals, calibration and scoring."""
