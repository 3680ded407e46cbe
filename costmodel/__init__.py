"""Formulas: pure functions from arrays to arrays. No file, no print, no random number, no solver."""
