-- Guarded tables whose fence column a role that can log in may write by itself,
-- apart from superusers.
SELECT c.oid::regclass::text, r.rolname::text
  FROM pg_trigger t
  JOIN pg_class c ON c.oid = t.tgrelid
  CROSS JOIN pg_roles r
 WHERE t.tgfoid = to_regprocedure('fence.require_advanced()')
   AND r.rolcanlogin AND NOT r.rolsuper
   AND has_column_privilege(r.oid, c.oid, 'fence_token', 'UPDATE')
 ORDER BY 1, 2
