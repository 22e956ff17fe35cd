"""One thin file a benchmark of `paradyse bench`: its flags, its figures as a table. What is measured is in `bench`."""
