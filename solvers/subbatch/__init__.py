"""Split of one iteration of L3 into two sub-batches (sec. 5.3)."""
