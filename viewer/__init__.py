"""The web viewer: a lane for each host, an arrow for each packet, time to the right. Reads only `collector.queries`."""
