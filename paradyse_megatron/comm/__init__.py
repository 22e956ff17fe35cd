"""Collectives with autograd, gathered weights and their prefetch, executors of layout conversions."""
