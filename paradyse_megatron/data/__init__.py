"""Documents of very different lengths as micro-batches: corpus files, samples, their order, batches, iterators.

Read in this order: `corpus` (build .bin/.idx), `documents` (one document a sample), `order` (which sample when),
`collate` (pad to the longest), `loader` (one data-parallel rank's micro-batches), `provider` (Megatron's entry).
"""
