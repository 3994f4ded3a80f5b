-- Everything that the lab claims about one way, counted from its tables. {s} is the
-- way's schema, $1 the TTL, $2 whether the way's store ends a lease before it grants the
-- lock again.
WITH
-- A write with what it was based on, and when the lease of its writer was over: at the end
-- that is known of it, which may be the latest one, or at the grant to the next if that is
-- how the store works.
writes AS (
  SELECT w.*, r.version AS based_on, least(w.lease_end, CASE WHEN $2::boolean THEN
    (SELECT min(n.granted_at) FROM {s}.event n WHERE n.kind = w.kind AND n.key = w.key AND n.granted_at > w.granted_at)
  END) AS over_at
  FROM {s}.event w JOIN {s}.event r ON r.hold = w.hold AND r.what = 'read'
  WHERE w.what = 'write'
),
-- Version v is lost when a later write was based on an earlier version than v.
overwrites AS (
  SELECT lost.hold AS lost, late.hold AS late,
         late.at <= late.over_at AND lost.at <= lost.over_at AS within_lease
  FROM writes lost JOIN writes late
    ON late.key = lost.key AND late.kind = 'update' AND lost.kind = 'update'
   AND late.based_on < lost.version AND lost.version < late.version
),
-- Payments of one reward in their order: all but the first are one too many.
payments AS (
  SELECT w.*, row_number() OVER (PARTITION BY key ORDER BY version) AS nth,
         bool_and(w.at <= w.over_at) OVER (PARTITION BY key) AS within_lease
  FROM writes w WHERE kind = 'pay'
),
-- Somebody who read and meant to write: a reward that is paid already needs nothing.
meant AS (
  SELECT * FROM {s}.event WHERE what = 'read' AND NOT (kind = 'pay' AND value > 0)
),
stalls AS (
  SELECT * FROM {s}.event WHERE what = 'stall'
)
SELECT
  (SELECT count(DISTINCT step) FROM {s}.event e
    WHERE e.what = 'write' OR (e.what = 'read' AND e.kind = 'pay' AND e.value > 0)) AS transactions,
  (SELECT count(*) FROM stalls) AS stalls,
  (SELECT count(*) FROM stalls WHERE at - frozen_at > $1::interval) AS long_stalls,
  (SELECT count(*) FROM writes WHERE at > over_at) AS writes_after_lease,
  (SELECT count(DISTINCT lost) FROM overwrites) AS lost_updates,
  (SELECT count(*) FROM payments WHERE nth > 1) AS double_payments,
  (SELECT count(DISTINCT lost) FROM overwrites WHERE within_lease)
    + (SELECT count(*) FROM payments WHERE nth > 1 AND within_lease) AS within_lease,
  (SELECT count(*) FROM meant m WHERE NOT EXISTS
    (SELECT FROM writes w WHERE w.hold = m.hold)) AS refused,
  (SELECT count(*) FROM {s}.event WHERE what = 'refused') AS refusals_logged,
  -- What the accounts lack, and what was paid beyond one payment a reward.
  (SELECT coalesce(sum(amount), 0)::bigint FROM writes WHERE kind = 'update')
    - (SELECT coalesce(sum(balance), 0)::bigint FROM {s}.account) AS missing,
  (SELECT coalesce(sum(amount), 0)::bigint FROM {s}.payment)
    - (SELECT coalesce(sum(amount), 0)::bigint FROM payments WHERE nth = 1) AS paid_twice,
  (SELECT count(*) FROM {s}.reward r WHERE NOT EXISTS
    (SELECT FROM {s}.payment p WHERE p.reward = r.id)) AS unpaid,
  -- The time from the first request for a lock to the last entry of the log.
  coalesce((SELECT extract(epoch FROM max(at) - min(asked_at)) FROM {s}.event), 0)::float8 AS seconds
