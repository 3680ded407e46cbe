"""How L3 splits one iteration into two sub-batches (sec. 5.3)."""
