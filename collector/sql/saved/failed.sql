-- requests that failed or were abandoned, by what went wrong
SELECT client, server, service, method, status, result, outcome, count(*) AS requests, min(begin) AS first,
       max(begin) AS last
FROM requests
WHERE outcome IN ('failed', 'abandoned')
GROUP BY ALL
ORDER BY requests DESC
