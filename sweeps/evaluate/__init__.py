"""Columns of a study, tables, provenance and simulation."""
