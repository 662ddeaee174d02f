"""The sample rate of speech, wherever none is named."""

SAMPLE_RATE = 16000  # hertz
