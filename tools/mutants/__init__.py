"""Changes to the models and solvers that some test must notice."""
