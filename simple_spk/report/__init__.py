"""A page to look at: error rates, curves, histograms and breakdowns of scored lists."""
