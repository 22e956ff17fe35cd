"""Time and memory of every option as functions of length: descriptions, first principles, the model file."""
