-- Transactions that have held a lock on the guard table for more than 30 s.
SELECT DISTINCT a.pid, a.usename::text, extract(epoch FROM now() - a.xact_start)::bigint
  FROM pg_locks l JOIN pg_stat_activity a USING (pid)
 WHERE l.relation = to_regclass('fence.guard') AND l.mode = 'RowExclusiveLock' AND l.granted
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND a.xact_start < now() - make_interval(secs => $1)
 ORDER BY 1
