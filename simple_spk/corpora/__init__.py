"""Corpus preparation: VoxCeleb, MUSAN, RIRs, speaker folders."""
