"""Our attention strategies beside independent implementations of the same thing, on CPU ranks with gloo."""
