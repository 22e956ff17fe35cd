"""What layers and loss heads do, counted on fake tensors; above `layers`, whose code it runs."""
