"""What happens per micro-batch: the decision, its trace and its metrics."""
