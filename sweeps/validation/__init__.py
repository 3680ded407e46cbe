"""Claims of the papers, the checks they need, and fits."""
