-- the busiest connections
SELECT c.id, c.client, c.server, c.server_port, c.protocol, c.packets, count(r.id) AS requests,
       sum(r.stall_ms) AS stall_ms, c.client_process, c.server_process
FROM connections c LEFT JOIN requests r ON r.connection_id = c.id
GROUP BY ALL
ORDER BY c.packets DESC
LIMIT 20
