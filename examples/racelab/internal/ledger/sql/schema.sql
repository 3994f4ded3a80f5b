-- One way's accounts, rewards and log. {s} is the way's schema.
--
-- What is missing is on purpose: payment has no UNIQUE (reward), because a lab that
-- lets the database forbid a second payment shows nothing about locks.
DROP SCHEMA IF EXISTS {s} CASCADE;
CREATE SCHEMA {s};

-- version counts the writes of an account, so that a write can be told from one that
-- was based on an older balance. fence_token is used by the column form alone.
CREATE TABLE {s}.account (
  id          integer PRIMARY KEY,
  balance     bigint NOT NULL DEFAULT 0,
  version     bigint NOT NULL DEFAULT 0,
  fence_token bigint NOT NULL DEFAULT 0 CHECK (fence_token BETWEEN 0 AND 9007199254740991),
  fenced_at   timestamptz
) WITH (fillfactor = 50);

CREATE TABLE {s}.reward (
  id          integer PRIMARY KEY,
  fence_token bigint NOT NULL DEFAULT 0 CHECK (fence_token BETWEEN 0 AND 9007199254740991),
  fenced_at   timestamptz
) WITH (fillfactor = 50);

CREATE TABLE {s}.payment (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  reward integer NOT NULL,
  amount bigint NOT NULL
);
CREATE INDEX ON {s}.payment (reward);

-- The log. A hold is one grant of one lock to one worker for one step. value is the
-- balance, or for rewards the number of payments; version that of the account.
CREATE TABLE {s}.event (
  n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  what       text NOT NULL CHECK (what IN ('read', 'stall', 'write', 'refused')),
  hold       text NOT NULL,
  step       integer NOT NULL,
  kind       text NOT NULL CHECK (kind IN ('update', 'pay')),
  key        integer NOT NULL,
  amount     bigint NOT NULL,
  worker     text NOT NULL,
  token      bigint,
  asked_at   timestamptz NOT NULL,
  granted_at timestamptz NOT NULL,
  frozen_at  timestamptz,
  lease_end  timestamptz,
  value      bigint,
  version    bigint,
  fence      bigint
);

INSERT INTO {s}.account (id) SELECT generate_series(0, $accounts - 1);
INSERT INTO {s}.reward (id) SELECT generate_series(0, $rewards - 1);
