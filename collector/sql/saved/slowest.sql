-- the slowest requests of clients, and where the time of each went
SELECT id, begin, duration_ms, method, target, server, status, outcome,
       connect_ms + tls_ms AS opening_ms, request_network_ms + response_network_ms AS network_ms, queue_ms, work_ms,
       fan_out_wait_ms, stall_ms
FROM requests
WHERE parent_id IS NULL AND background IS NOT TRUE
ORDER BY duration_ms DESC NULLS LAST
LIMIT 20
