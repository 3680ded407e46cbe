"""Questions: studies, study files, grids, sizes and traces."""
