"""Figures of tables: each function takes a DataFrame, draws on axes and returns them."""
