"""Simulators and drivers that tests and benchmarks share. Not installed with the wheel.

Everything here makes an input whose truth is known, or runs a real system to look at. Nothing here expects or judges:
expectations are in `tests/`, measurements in `benchmarks/`. So nothing here imports pytest, `tests` or `benchmarks`.
What only tests use lies in `tests/helpers/`.

Capture files
    `netsim`            hosts, paths and TCP, simulated: each host's capture, and which packet became which
    `upload_captures`   two hosts' captures of many uploads, ten million packets in seconds, and floods of SYNs
    `traffic_shapes`    the same for traffic of other shapes: kept connections, a bulk stream, loss, HTTP/2
    `hostile_captures`  captures whose every text tries to escape from where it is shown
    `capture_files`     pcap and pcapng byte by byte, in every variant that the formats allow
    `capture_records`   any capture file cut into its records, to be damaged and joined again

Tables of a trace
    `tables`            rows as a table of the schema
    `services_sim`      services that call each other, simulated: exchanges, and the true parent of each
    `clock_traffic`     hops between hosts whose clocks are wrong in a known way
    `clock_paths`       what such hops are drawn from: queues, asymmetry, few packets, drift, steps
    `synthetic_trace`   whole traces of uploads, of any size
    `days`              summaries of many days with an incident in them, as a series without traces

Runs of the load generator
    `load_runs`         folders of runs that never ran: with a fault, a stall, a lost driver

Running systems
    `live_hosts`        two hosts in network namespaces, an agent on them, and HTTP between them
    `recorded_pair`     a flight recorder on each of these, their collector, and requests that fail on demand
    `ssh_hosts`         hosts in network namespaces with an sshd each, to log in to
    `lossy_path`        a path between these that delays and loses frames
    `ceph_cluster`      the daemons of a Ceph, wherever the caller runs them
    `s3_stores`         S3 stores of others on loopback: MinIO, Ceph with its gateway, moto
    `loopback_store`    every server of the bundled store on loopback, in one process
    `two_back_ends`     the routing proxy and two stores behind it on loopback, in one process
    `swift_scenarios`   requests of the Swift API, by area, with the answers that OpenStack Swift gave
    `chromium`          a headless browser

Seeds are arguments, times are int64 nanoseconds. `benchmarks/` shows how each is used.
"""
