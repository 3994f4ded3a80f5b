-- The tables of the item server. Every statement may run again.

-- What players own. UNIQUE stands by itself, whatever becomes of the keys.
CREATE TABLE IF NOT EXISTS item_grant (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  player_id       text COLLATE "C" NOT NULL,
  reward_event_id text COLLATE "C" NOT NULL,
  amount          bigint NOT NULL CHECK (amount > 0),
  granted_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT item_grant_once UNIQUE (player_id, reward_event_id)
);

-- Keys and their answers. For ever: a key that is forgotten is paid again.
CREATE TABLE IF NOT EXISTS item_key (
  idem_key    text COLLATE "C" PRIMARY KEY CHECK (octet_length(idem_key) BETWEEN 1 AND 400),
  grant_id    bigint NOT NULL REFERENCES item_grant,
  fingerprint bytea NOT NULL,
  fence_token bigint CHECK (fence_token BETWEEN 1 AND 9007199254740991),
  answered_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
