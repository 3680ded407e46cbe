"""Columns of a study, comparison, provenance, and rows of the catalogues."""
