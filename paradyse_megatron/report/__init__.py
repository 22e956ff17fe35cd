"""Tables, plots and the page that show what was chosen and why."""
