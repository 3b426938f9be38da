"""Records any hosts from here, for as long as a command runs: nothing is installed there, one connection each.

Input: ways to hosts (`ways`), such as `ssh web1`. Output: each host's capture, as an agent writes it, in a folder.

1. `session`: start a shell there, through the way, which runs the scripts that it is sent.
2. `preflight`: ask what is there (rights, interfaces, clock, load, tools), and what is in the way of a capture.
3. `starts`: choose what captures: our agent if it is there; our agent, sent along; tcpdump.
4. `streams`: write what comes to the disk; of tcpdump's packets what the payload policy keeps, redacted, before that.
5. `progress`: packets, drops and lag of each host.
6. `recording`: all of it for all hosts at once, in order.

Invariant: a host has no file of ours while it is captured, and no process of ours after its connection has ended.
"""
