"""Which heads of each sub-layer go to HBM (H2M2 sec. 3, 4.3)."""
