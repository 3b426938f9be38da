"""Load from several hosts: drivers that put it on a store, a controller that splits a workload over them and merges."""
