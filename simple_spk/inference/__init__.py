"""Trained models at work: extractor, batch embedding, decisions, trial evaluation."""
