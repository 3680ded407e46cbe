"""Pick the knobs: a result is a choice, its value, and a bound where one is known."""
