-- each way between two hosts: packets, losses, delays
SELECT sender, receiver, count(*) AS packets, count(*) FILTER (state = 'lost') AS lost,
       count(*) FILTER (attempt > 1) AS sent_again, min(delay_us) AS least_us, median(delay_us) AS median_us,
       quantile_cont(delay_us, 0.99) AS p99_us, max(delay_error_us) AS error_us
FROM packets
GROUP BY ALL
ORDER BY packets DESC
