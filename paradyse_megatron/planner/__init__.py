"""Plans as values, the peak-memory rule and the search for a plan. Integers and numpy only."""
