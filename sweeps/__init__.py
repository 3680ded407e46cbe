"""Grids of design points, their evaluation, tables and files."""
