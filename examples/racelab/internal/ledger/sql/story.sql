-- The entries of the log about one reward, in their order. {s} is the way's schema.
SELECT what, hold, step, worker, coalesce(token, 0), at, asked_at, granted_at, frozen_at, lease_end, coalesce(value, 0), amount, coalesce(fence, 0)
FROM {s}.event WHERE kind = 'pay' AND key = $1 ORDER BY at, n
