"""The collector as a service: it receives segments from agents, and analyses sessions."""
