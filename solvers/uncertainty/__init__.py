"""The algebra of uncertainty: laws of numbers, common draws, quantiles, spreads and indices."""
