"""Stores of enrolled voices: what all offer, a file, FAISS and Qdrant."""
