-- Tables that fence.protect was meant to guard and that no enabled trigger of it does.
-- Its constraint stays when its trigger is dropped. A fence_token column without it is
-- one that statements compare themselves.
SELECT c.oid::regclass::text
  FROM pg_class c JOIN pg_constraint k ON k.conrelid = c.oid AND k.conname = 'fence_token_range'
 WHERE NOT EXISTS (
     SELECT 1 FROM pg_trigger t
      WHERE t.tgrelid = c.oid AND t.tgenabled IN ('O', 'A')
        AND t.tgfoid = to_regprocedure('fence.require_advanced()'))
 ORDER BY 1
