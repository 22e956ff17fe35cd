"""The paradyse command, one thin file per verb."""
