"""Numbers, no formulas: parts, platforms and the source of every number."""
