-- Rewards that one worker paid after a stall in which another was granted the lock and paid:
-- step is the one that stalled. {s} is the way's schema. The first is the
-- one in which the picture has most room: the longest time in which the newcomer,
-- fully inside the stall of the other, holds the lock.
SELECT late.key, late.step
FROM {s}.event stall
JOIN {s}.event late  ON late.hold = stall.hold AND late.what = 'write'
JOIN {s}.event early ON early.what = 'write' AND early.kind = 'pay' AND early.key = late.key AND early.hold <> late.hold
WHERE stall.what = 'stall' AND stall.kind = 'pay'
  AND early.granted_at > stall.frozen_at AND early.at < stall.at
ORDER BY late.at - early.at DESC, late.step
