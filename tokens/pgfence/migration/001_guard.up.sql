-- Fences in PostgreSQL: the schema of fenced, version 1. Needs PostgreSQL 14.
--
-- Run it in one transaction (psql -1 -f), as a superuser or as a role with
-- CREATEROLE and CREATE on the database. A released file is never edited.
--
-- fence_owner owns everything here and cannot log in; who is a member of it can
-- repair fences. fence_writer may advance fences and nothing else; make the
-- application's role a member of it. Roles belong to the whole cluster, so both
-- may be there from another database.

DO $$
DECLARE
  r text;
BEGIN
  FOREACH r IN ARRAY ARRAY['fence_owner', 'fence_writer'] LOOP
    BEGIN
      EXECUTE format('CREATE ROLE %I NOLOGIN', r);
    -- The second name is what a race with another database's installation gives.
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
  END LOOP;
  -- From 16 on, who has made a role is a member of it that may grant it, and no more.
  IF NOT pg_has_role('fence_owner', CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END) THEN
    EXECUTE format('GRANT fence_owner TO %I', current_user);
  END IF;
END $$;

CREATE SCHEMA fence AUTHORIZATION fence_owner;
SET LOCAL ROLE fence_owner;
COMMENT ON SCHEMA fence IS 'fenced schema version 1';

-- One row a resource: its fence. Rows are never deleted: a deleted fence forgets
-- its token. (xact, xact_at) is the transaction that advanced it last. The xid
-- alone would not do as a proof: a dump that is restored elsewhere carries old
-- xids, and a future transaction there may have the same.
CREATE TABLE fence.guard (
  resource text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 1024),
  token    bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991),
  xact     xid8 NOT NULL,
  xact_at  timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The lowest token that any resource takes. See fence.raise_floor.
CREATE TABLE fence.floor (
  one       boolean PRIMARY KEY DEFAULT true CHECK (one),
  min_token bigint NOT NULL DEFAULT 1 CHECK (min_token BETWEEN 1 AND 9007199254740991)
);
INSERT INTO fence.floor DEFAULT VALUES;

-- advance raises the fence of a resource to a token and keeps its row locked
-- until the transaction ends, so that no higher token overtakes it. It returns
-- the token, or raises and so undoes the caller's transaction:
--   LF001 stale      the fence, or the floor, is higher
--   LF004 duplicate  equal, in strict mode, and not by this transaction
--   LF003 invalid    a token or resource out of bounds
-- DETAIL of LF001 and LF004 is JSON: resource, token, current.
-- p_wait_ms bounds the wait for another transaction (55P03); null leaves
-- lock_timeout as it is.
CREATE FUNCTION fence.advance(p_resource text, p_token bigint, p_strict boolean DEFAULT true, p_wait_ms integer DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  cur bigint;
  flr bigint;
  old_wait text;
  set_to text;
BEGIN
  IF p_token IS NULL OR p_token NOT BETWEEN 1 AND 9007199254740991 OR p_strict IS NULL
     OR p_resource IS NULL OR octet_length(p_resource) NOT BETWEEN 1 AND 1024 THEN
    RAISE EXCEPTION 'invalid fencing claim' USING ERRCODE = 'LF003';
  END IF;

  -- A refusal needs no lock, for fences never fall; and a stale caller that does
  -- not queue cannot hold up those behind it.
  SELECT f.min_token, g.token INTO STRICT flr, cur
    FROM fence.floor f LEFT JOIN fence.guard g ON g.resource = p_resource;

  IF p_token >= flr AND (cur IS NULL OR cur <= p_token) THEN
    IF p_wait_ms IS NOT NULL THEN
      old_wait := current_setting('lock_timeout');
      -- An assignment, because PERFORM would run a query of its own.
      set_to := set_config('lock_timeout', greatest(p_wait_ms, 1)::text, true);
    END IF;
    INSERT INTO fence.guard AS g VALUES (p_resource, p_token, pg_current_xact_id(), transaction_timestamp())
    ON CONFLICT (resource) DO UPDATE
       SET token = EXCLUDED.token, xact = EXCLUDED.xact, xact_at = EXCLUDED.xact_at
     WHERE g.token < EXCLUDED.token
        OR (g.token = EXCLUDED.token
            AND (NOT p_strict OR (g.xact = EXCLUDED.xact AND g.xact_at = EXCLUDED.xact_at)))
    RETURNING g.token INTO cur;
    IF FOUND THEN
      IF old_wait IS NOT NULL THEN
        set_to := set_config('lock_timeout', old_wait, true);
      END IF;
      -- The floor may have risen while this call waited for the row or for the
      -- table. READ COMMITTED sees that with a new snapshot; a transaction with
      -- one snapshot sees it only as a conflict over the row, 40001.
      IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT min_token INTO STRICT flr FROM fence.floor;
      ELSE
        SELECT min_token INTO STRICT flr FROM fence.floor FOR SHARE;
      END IF;
      IF p_token >= flr THEN
        RETURN cur;
      END IF;
    ELSE
      -- Again, because the row may have changed while the statement waited.
      SELECT g.token INTO cur FROM fence.guard g WHERE g.resource = p_resource;
    END IF;
  END IF;

  RAISE EXCEPTION 'fencing token refused' USING
    ERRCODE = CASE WHEN cur = p_token AND p_token >= flr THEN 'LF004' ELSE 'LF001' END,
    DETAIL = json_build_object('resource', p_resource, 'token', p_token, 'current', greatest(cur, flr))::text;
END $$;

-- advance_all advances several resources, all or nothing, in the order of their
-- names, so that two callers cannot wait for each other. Naming a resource twice
-- is LF003.
CREATE FUNCTION fence.advance_all(p_resources text[], p_tokens bigint[], p_strict boolean[], p_wait_ms integer DEFAULT NULL)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  c record;
  last text;
BEGIN
  FOR c IN SELECT * FROM unnest(p_resources, p_tokens, p_strict) AS u(resource, token, one_shot) ORDER BY resource COLLATE "C" LOOP
    IF c.resource = last THEN
      RAISE EXCEPTION 'invalid fencing claim: a resource is named twice' USING ERRCODE = 'LF003';
    END IF;
    PERFORM fence.advance(c.resource, c.token, c.one_shot, p_wait_ms);
    last := c.resource;
  END LOOP;
END $$;

-- peek returns the fence of a resource as this transaction sees it: 0 where it
-- has none, at least the floor where one was raised. A token below it is stale
-- for ever; nothing else follows from it.
CREATE FUNCTION fence.peek(p_resource text)
RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT greatest(coalesce((SELECT g.token FROM fence.guard g WHERE g.resource = p_resource), 0),
                  (SELECT nullif(f.min_token, 1) FROM fence.floor f));
$$;

-- proof returns the token to which this very transaction has advanced a resource,
-- null where it has not. Anybody may ask: it tells what the caller has done.
-- pg_current_xact_id_if_assigned() is that of the outermost transaction, so
-- savepoints work; one that undoes the advance undoes the proof with it.
CREATE FUNCTION fence.proof(p_resource text)
RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT g.token FROM fence.guard g
   WHERE g.resource = p_resource AND g.xact = pg_current_xact_id_if_assigned() AND g.xact_at = transaction_timestamp();
$$;

-- require_advanced refuses a write (LF002) unless this very transaction has
-- advanced the row's resource, and stamps the row's fence_token. Arguments: the
-- prefix and the key column; the resource is the prefix and the key's text.
-- A move of the key needs both resources.
--
-- It runs with the rights of whoever writes, on purpose: to_jsonb calls the casts,
-- and the assignment the checks, of whatever types the table has, and anybody may
-- make a table of his own with this trigger. What needs the owner's rights is
-- behind proof, which takes a text and runs nothing of the caller's.
CREATE FUNCTION fence.require_advanced()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  k_old text;
  k_new text;
  t bigint;
BEGIN
  IF TG_OP <> 'INSERT' THEN
    k_old := TG_ARGV[0] || (to_jsonb(OLD) ->> TG_ARGV[1]);
  END IF;
  IF TG_OP <> 'DELETE' THEN
    k_new := TG_ARGV[0] || (to_jsonb(NEW) ->> TG_ARGV[1]);
  END IF;
  IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND k_old IS DISTINCT FROM k_new) THEN
    IF fence.proof(k_old) IS NULL THEN
      RAISE EXCEPTION 'write without a fencing token' USING ERRCODE = 'LF002', DETAIL = coalesce(k_old, 'no ' || TG_ARGV[1]);
    END IF;
  END IF;
  IF TG_OP = 'DELETE' THEN
    RETURN OLD;
  END IF;
  t := fence.proof(k_new);
  IF t IS NULL THEN
    RAISE EXCEPTION 'write without a fencing token' USING ERRCODE = 'LF002', DETAIL = coalesce(k_new, 'no ' || TG_ARGV[1]);
  END IF;
  NEW.fence_token := t;
  RETURN NEW;
END $$;

-- refuse_truncate refuses TRUNCATE, which fires no row trigger.
CREATE FUNCTION fence.refuse_truncate()
RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'write without a fencing token' USING
    ERRCODE = 'LF002', DETAIL = format('TRUNCATE of %s', TG_RELID::regclass);
END $$;

-- protect has a table refuse unfenced writes: a fence_token column, and triggers
-- that are named to run last, because a later one could change the stamp. The
-- caller must own the table. Doing it again, with other arguments, replaces it; do it
-- again for a partition that came later, which TRUNCATE could empty otherwise.
CREATE FUNCTION fence.protect(p_table regclass, p_key name, p_prefix text DEFAULT '')
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  kind pg_type;
  part regclass;
BEGIN
  -- The column's type, below its domains. A generated column has no value yet when
  -- the trigger runs.
  WITH RECURSIVE of AS (
    SELECT t.oid, t.typtype, t.typbasetype FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
     WHERE a.attrelid = p_table AND a.attname = p_key AND a.attnum > 0 AND a.attnotnull AND a.attgenerated = ''
    UNION ALL
    SELECT t.oid, t.typtype, t.typbasetype FROM of JOIN pg_type t ON t.oid = of.typbasetype WHERE of.typtype = 'd')
  SELECT t.* INTO kind FROM of JOIN pg_type t USING (oid) WHERE of.typtype <> 'd';
  IF NOT FOUND THEN
    RAISE EXCEPTION 'table % has no NOT NULL column % that is not generated', p_table, p_key USING ERRCODE = 'LF003';
  END IF;
  -- One row must have one name: the text of other types depends on the session's
  -- settings, such as TimeZone or bytea_output.
  IF kind.typcategory <> 'S' AND kind.typtype <> 'e'
     AND kind.oid <> ALL ('{int2,int4,int8,numeric,uuid,date,timestamp,bool}'::regtype[]) THEN
    RAISE EXCEPTION 'column % of table % is of type %, whose text is not the same in every session', p_key, p_table, format_type(kind.oid, NULL)
      USING ERRCODE = 'LF003';
  END IF;
  -- A write to a table is one to its heirs, and fires their triggers. Partitions get
  -- theirs from the table.
  SELECT c.oid INTO part FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
   WHERE i.inhparent = p_table AND NOT c.relispartition
     AND NOT EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgname = 'zz_fence')
   LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'table % inherits from % and is not protected: protect it first', part, p_table USING ERRCODE = 'LF003';
  END IF;
  EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS fence_token bigint NOT NULL DEFAULT 0', p_table);
  -- 0 marks rows from before the fence; the trigger never writes it.
  EXECUTE format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS fence_token_range', p_table);
  EXECUTE format('ALTER TABLE %s ADD CONSTRAINT fence_token_range CHECK (fence_token BETWEEN 0 AND 9007199254740991)', p_table);
  EXECUTE format('DROP TRIGGER IF EXISTS zz_fence ON %s', p_table);
  EXECUTE format('CREATE TRIGGER zz_fence BEFORE INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION fence.require_advanced(%L, %L)',
                 p_table, p_prefix, p_key);
  -- Triggers of statements are not handed down to partitions.
  FOR part IN SELECT p_table UNION SELECT relid FROM pg_partition_tree(p_table) LOOP
    EXECUTE format('DROP TRIGGER IF EXISTS zz_fence_truncate ON %s', part);
    EXECUTE format('CREATE TRIGGER zz_fence_truncate BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION fence.refuse_truncate()', part);
  END LOOP;
END $$;

-- repair sets a fence to any token, also a lower one, and returns what it was;
-- null where the resource has no fence. For members of fence_owner, after a
-- fence was advanced by mistake far beyond what its lock has granted.
CREATE FUNCTION fence.repair(p_resource text, p_token bigint)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  was bigint;
BEGIN
  IF p_token IS NULL OR p_token NOT BETWEEN 1 AND 9007199254740991 THEN
    RAISE EXCEPTION 'invalid fencing token' USING ERRCODE = 'LF003';
  END IF;
  SELECT g.token INTO was FROM fence.guard g WHERE g.resource = p_resource FOR UPDATE;
  UPDATE fence.guard g SET token = p_token WHERE g.resource = p_resource;
  RETURN was;
END $$;

-- raise_floor has every resource refuse tokens below p_token from now on, and
-- returns the floor that stands, which never falls. The lock waits for every
-- transaction that has advanced a fence and holds back those that want to, so
-- that none which saw the old floor commits after this one.
CREATE FUNCTION fence.raise_floor(p_token bigint)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  flr bigint;
BEGIN
  IF p_token IS NULL OR p_token NOT BETWEEN 1 AND 9007199254740991 THEN
    RAISE EXCEPTION 'invalid fencing token' USING ERRCODE = 'LF003';
  END IF;
  LOCK TABLE fence.guard IN SHARE ROW EXCLUSIVE MODE;
  UPDATE fence.floor SET min_token = greatest(min_token, p_token) RETURNING min_token INTO STRICT flr;
  RETURN flr;
END $$;

-- Everybody may use the schema, because a table's owner needs it for protect and
-- a trigger's function cannot be called on its own; writers may advance.
GRANT USAGE ON SCHEMA fence TO PUBLIC;
REVOKE ALL ON FUNCTION fence.advance, fence.advance_all, fence.peek, fence.repair, fence.raise_floor FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fence.advance, fence.advance_all, fence.peek TO fence_writer;

RESET ROLE;
