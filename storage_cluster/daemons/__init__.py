"""Daemons that keep the store consistent: replicators, auditors, updaters, the expirer, the reaper."""
