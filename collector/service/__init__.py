"""The collector as a service: it takes segments from agents, and has sessions analysed."""
