CREATE TABLE pawl_outbox (
    seq        bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id         char(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    queue      varchar(256) NOT NULL DEFAULT 'default',
    task       longtext NOT NULL,
    created_at datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE pawl_outbox_dead (
    seq        bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id         char(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    queue      varchar(256) NOT NULL,
    task       longtext NOT NULL,
    created_at datetime(6) NOT NULL,
    died_at    datetime(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    error      text NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE pawl_outbox_relay (
    one        int NOT NULL PRIMARY KEY,
    holder     varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    expires_at datetime(6) NOT NULL
) ENGINE=InnoDB;
INSERT INTO pawl_outbox_relay (one, holder, expires_at) VALUES (1, '', '1970-01-01 00:00:00');

CREATE TABLE pawl_effect (
    task_id    char(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name       varchar(256) NOT NULL,
    fence      bigint NOT NULL,
    run        char(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    result     longtext NOT NULL,
    keep_until datetime(6) NOT NULL,
    PRIMARY KEY (task_id, name),
    INDEX pawl_effect_keep_until (keep_until)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE pawl_outbox_schema (version int NOT NULL PRIMARY KEY) ENGINE=InnoDB;
INSERT INTO pawl_outbox_schema (version) VALUES (1);
