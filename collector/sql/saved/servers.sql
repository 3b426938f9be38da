-- each server's time for a request, its calls included, and its share of what clients waited
SELECT server, service, count(*) AS requests, quantile_cont(server_ms, 0.5) AS server_p50_ms,
       quantile_cont(server_ms, 0.99) AS server_p99_ms, sum(work_ms) AS work_on_critical_paths_ms,
       sum(critical_ms) AS on_critical_paths_ms
FROM requests
GROUP BY ALL
ORDER BY on_critical_paths_ms DESC NULLS LAST
