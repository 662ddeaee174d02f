"""The command simple-spk."""
