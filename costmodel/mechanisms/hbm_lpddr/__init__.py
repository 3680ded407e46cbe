"""Head-aware mapping of attention over HBM and LPDDR."""
