-- who calls whom, how often for a request, and how long that takes
SELECT p.service AS caller, c.service AS called, coalesce(c.operation, c.method) AS what, count(*) AS calls,
       count(*) / count(DISTINCT p.id) AS calls_for_a_request, median(c.duration_ms) AS median_ms
FROM requests c JOIN requests p ON p.id = c.parent_id
GROUP BY ALL
ORDER BY calls DESC
