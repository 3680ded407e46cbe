"""What is asked: studies, study files, grids, sizes and traces."""
