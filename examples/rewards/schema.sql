-- The tables of the reward pipeline. Every statement may run again.

-- Inbox: what the broker delivered, at least once. A worker takes a row by pushing
-- next_at past its own time and raising lease_gen; only that lease_gen may settle it.
CREATE TABLE IF NOT EXISTS reward_message (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  player_id       text COLLATE "C" NOT NULL CHECK (octet_length(player_id) BETWEEN 1 AND 64),
  reward_event_id text COLLATE "C" NOT NULL CHECK (octet_length(reward_event_id) BETWEEN 1 AND 256),
  amount          bigint NOT NULL CHECK (amount BETWEEN 1 AND 1000000000),
  status          text NOT NULL DEFAULT 'READY' CHECK (status IN ('READY', 'DONE', 'DEAD')),
  outcome         text,
  attempts        integer NOT NULL DEFAULT 0,
  next_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
  lease_gen       bigint NOT NULL DEFAULT 0,
  last_error      text,
  received_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  done_at         timestamptz
);
CREATE INDEX IF NOT EXISTS reward_message_ready ON reward_message (next_at, id) WHERE status = 'READY';

-- Claim: one row a reward, for ever. CLAIMED -> APPLIED, and APPLIED never changes.
-- The rows are the evidence against a second payment: never delete them.
CREATE TABLE IF NOT EXISTS reward_claim (
  claim_id        uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  player_id       text COLLATE "C" NOT NULL CHECK (octet_length(player_id) BETWEEN 1 AND 64),
  reward_event_id text COLLATE "C" NOT NULL CHECK (octet_length(reward_event_id) BETWEEN 1 AND 256),
  fence_token     bigint NOT NULL CHECK (fence_token BETWEEN 1 AND 9007199254740991),
  status          text NOT NULL CHECK (status IN ('CLAIMED', 'APPLIED')),
  updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT reward_claim_once UNIQUE (player_id, reward_event_id)
);

-- Ledger: what was paid. Its own UNIQUE stands even where a claim was lost or
-- somebody writes past it.
CREATE TABLE IF NOT EXISTS reward_ledger (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  player_id       text COLLATE "C" NOT NULL,
  reward_event_id text COLLATE "C" NOT NULL,
  amount          bigint NOT NULL CHECK (amount BETWEEN 1 AND 1000000000),
  claim_id        uuid NOT NULL REFERENCES reward_claim,
  fence_token     bigint NOT NULL CHECK (fence_token BETWEEN 1 AND 9007199254740991),
  applied_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT reward_ledger_once UNIQUE (player_id, reward_event_id)
);

-- Outbox: what the item server is still to be told. agg_key is the player, whose
-- rows are published in order; fence_token is the claim's, or that of a later hold of
-- the same lock where the row was sent again, never the publisher's.
CREATE TABLE IF NOT EXISTS reward_outbox (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  idem_key    text COLLATE "C" NOT NULL CONSTRAINT reward_outbox_once UNIQUE,
  agg_key     text COLLATE "C" NOT NULL,
  payload     jsonb NOT NULL,
  fence_token bigint NOT NULL CHECK (fence_token BETWEEN 1 AND 9007199254740991),
  status      text NOT NULL DEFAULT 'READY' CHECK (status IN ('READY', 'DONE', 'DEAD')),
  attempts    integer NOT NULL DEFAULT 0,
  next_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  lease_gen   bigint NOT NULL DEFAULT 0,
  last_error  text,
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  done_at     timestamptz
);
CREATE INDEX IF NOT EXISTS reward_outbox_ready ON reward_outbox (next_at, id) WHERE status = 'READY';
CREATE INDEX IF NOT EXISTS reward_outbox_head ON reward_outbox (agg_key, id) WHERE status <> 'DONE';
