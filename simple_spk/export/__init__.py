"""Models for and from other toolkits: ONNX, SpeechBrain, WeSpeaker."""
