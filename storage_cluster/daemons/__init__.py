"""What keeps a store whole while nobody asks for anything: replicators, auditors, updaters, the expirer, the reaper."""
