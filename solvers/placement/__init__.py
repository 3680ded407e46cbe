"""Placement of weights, KV cache and activations, and in which blocks it works."""
