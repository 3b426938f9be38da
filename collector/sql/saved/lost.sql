-- packets that were lost, and what they delayed
SELECT p.sent, p.sender, p.receiver, p.kind, p.bytes, p.attempt, p.connection_id, p.request_id, r.method, r.target,
       r.stall_ms
FROM packets p LEFT JOIN requests r ON r.id = p.request_id
WHERE p.state = 'lost'
ORDER BY p.sent
