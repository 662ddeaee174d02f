"""The training loop on SpeechBrain's Brain, its checkpoints and its log."""
