CREATE TABLE pawl_outbox (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL,
    queue      TEXT NOT NULL DEFAULT 'default',
    task       TEXT NOT NULL,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

CREATE TABLE pawl_outbox_dead (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL,
    queue      TEXT NOT NULL,
    task       TEXT NOT NULL,
    created_at TEXT NOT NULL,
    died_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    error      TEXT NOT NULL
);

CREATE TABLE pawl_outbox_relay (
    holder     TEXT NOT NULL,
    expires_at TEXT NOT NULL
);
INSERT INTO pawl_outbox_relay (holder, expires_at) VALUES ('', '1970-01-01T00:00:00.000Z');

CREATE TABLE pawl_effect (
    task_id    TEXT NOT NULL,
    name       TEXT NOT NULL,
    fence      INTEGER NOT NULL,
    run        TEXT NOT NULL,
    result     TEXT NOT NULL,
    keep_until TEXT NOT NULL,
    PRIMARY KEY (task_id, name)
);
CREATE INDEX pawl_effect_keep_until ON pawl_effect (keep_until);

CREATE TABLE pawl_outbox_schema (version INTEGER NOT NULL);
INSERT INTO pawl_outbox_schema (version) VALUES (1);
