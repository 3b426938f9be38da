-- requests of clients second by second
SELECT date_trunc('second', begin) AS second, count(*) AS requests, count(*) FILTER (outcome = 'failed') AS failed,
       median(duration_ms) AS p50_ms, quantile_cont(duration_ms, 0.99) AS p99_ms, sum(response_bytes) AS bytes
FROM requests
WHERE parent_id IS NULL AND background IS NOT TRUE
GROUP BY ALL
ORDER BY second
