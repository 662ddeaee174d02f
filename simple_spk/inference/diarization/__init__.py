"""Who spoke when, and which recordings are of one speaker."""
