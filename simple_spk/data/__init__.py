"""Manifests, trial lists, audio, samplers, crops and augmentation."""
