CREATE TABLE pawl_outbox (
    seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         uuid NOT NULL DEFAULT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING
                   substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                   FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid,
    queue      text NOT NULL DEFAULT 'default',
    task       json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE pawl_outbox_dead (
    seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         uuid NOT NULL,
    queue      text NOT NULL,
    task       json NOT NULL,
    created_at timestamptz NOT NULL,
    died_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    error      text NOT NULL
);

CREATE TABLE pawl_outbox_relay (
    holder     text NOT NULL,
    expires_at timestamptz NOT NULL,
    notify     boolean NOT NULL DEFAULT true
);
INSERT INTO pawl_outbox_relay (holder, expires_at) VALUES ('', 'epoch');

CREATE FUNCTION pawl_outbox_notify() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM pawl_outbox_relay WHERE notify) THEN
        PERFORM pg_notify('pawl_outbox', '');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER pawl_outbox_notify AFTER INSERT ON pawl_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION pawl_outbox_notify();

CREATE TABLE pawl_effect (
    task_id    text NOT NULL,
    name       text NOT NULL,
    fence      bigint NOT NULL,
    run        text NOT NULL,
    result     text NOT NULL,
    keep_until timestamptz NOT NULL,
    PRIMARY KEY (task_id, name)
);
CREATE INDEX pawl_effect_keep_until ON pawl_effect (keep_until);

CREATE TABLE pawl_outbox_schema (version integer NOT NULL);
INSERT INTO pawl_outbox_schema (version) VALUES (1);
