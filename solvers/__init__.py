"""Pick the knobs: every result is a choice, its value and a certificate."""
