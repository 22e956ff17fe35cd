"""What this machine has of all that training can use, and how to get the rest."""
