"""One file per benchmark: run(options) returns the rows of its table."""
