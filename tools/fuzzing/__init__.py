"""One file per kind of file: write_originals, write_mutant and read."""
