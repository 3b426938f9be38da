-- requests of clients by class: how many, how slow, how many failed
SELECT service, coalesce(operation, method) AS what, count(*) AS requests,
       count(*) FILTER (outcome = 'failed') AS failed, count(*) FILTER (outcome = 'abandoned') AS abandoned,
       quantile_cont(duration_ms, 0.5) FILTER (outcome != 'abandoned') AS p50_ms,
       quantile_cont(duration_ms, 0.99) FILTER (outcome != 'abandoned') AS p99_ms
FROM requests
WHERE parent_id IS NULL AND background IS NOT TRUE
GROUP BY ALL
ORDER BY requests DESC
