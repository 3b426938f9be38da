"""Systems that are not ours, and what the product says of them, held against independent truth."""
