"""Long sweeps: plan, reduce, encode, store, execute."""
