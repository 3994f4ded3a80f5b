-- fenced: the fences of the application's resources, one row each.
--
-- A resource is compared byte by byte, so it is binary: a text collation would
-- take "a" and "A", or "a" and "a ", for one. A row is never deleted: a fence that
-- is forgotten lets every old token in again.
CREATE TABLE fence_guard (
  resource VARBINARY(1024) NOT NULL,
  token    BIGINT NOT NULL,
  -- the unit of work that was accepted last
  unit     BINARY(16) NOT NULL,
  PRIMARY KEY (resource),
  CONSTRAINT fence_guard_resource CHECK (LENGTH(resource) >= 1),
  CONSTRAINT fence_guard_token CHECK (token BETWEEN 1 AND 9007199254740991)
) ENGINE=InnoDB COMMENT='fenced schema version 1'
