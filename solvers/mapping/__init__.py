"""Heads of each sub-layer that go to HBM (H2M2 sec. 3, 4.3)."""
