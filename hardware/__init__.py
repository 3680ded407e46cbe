"""Numbers, no formulas: parts, platforms and where every figure comes from."""
