"""Records to comparison.json: every row, means over seeds, and outcomes with intervals. Reads records only."""
