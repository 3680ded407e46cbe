"""Questions beyond a grid: solved knobs, sizing, crossovers, Pareto fronts, sensitivity."""
