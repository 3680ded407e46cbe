"""Long sweeps and searches: plan, parts and resume, best rows, formats, workers."""
