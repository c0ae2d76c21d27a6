-- A database of schema version 1 with real rows. It stays as it is when the schema moves on.
BEGIN TRANSACTION;
CREATE TABLE calls (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            thread TEXT NOT NULL,
            state TEXT NOT NULL,
            owner TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, id)
        );
INSERT INTO "calls" VALUES('acme','call_1','support-42','answered','boot_1','{"id":"call_1","thread":"support-42","kind":"ask","state":"answered","owner":"boot_1","position":0,"created_at":"2026-03-01T12:00:05.123456Z","user":"u1","ended_at":"2026-03-01T12:00:05.123456Z"}');
INSERT INTO "calls" VALUES('bolt','call_1','support-42','active','boot_0','{"id":"call_1","thread":"support-42","kind":"ask","state":"active","owner":"boot_0","position":0,"created_at":"2026-03-01T12:00:05.123456Z","user_turn":{"id":"turn_9","role":"user","parts":[{"type":"text","text":"asked"}],"created_at":"2026-03-01T12:00:05.123456Z"},"user":"u1"}');
CREATE TABLE ledger (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            call TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, id)
        );
INSERT INTO "ledger" VALUES('acme','ledger_1','call_1','{"id":"ledger_1","call":"call_1","model":null,"usage":null,"outcome":"answered","created_at":"2026-03-01T12:00:05.123456Z"}');
CREATE TABLE threads (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            length BIGINT NOT NULL,
            changed BIGINT NOT NULL,
            title TEXT,
            "user" TEXT,
            created_at BIGINT NOT NULL,
            updated_at BIGINT NOT NULL,
            PRIMARY KEY (tenant, id)
        );
INSERT INTO "threads" VALUES('acme','support-42',4,1,'It''s late','u1',1772366405123456,1772366405123456);
INSERT INTO "threads" VALUES('acme','empty',0,2,NULL,NULL,1772366405123456,1772366405123456);
INSERT INTO "threads" VALUES('bolt','support-42',1,1,NULL,NULL,1772366405123456,1772366405123456);
CREATE TABLE turngate_schema (version INTEGER NOT NULL PRIMARY KEY);
INSERT INTO "turngate_schema" VALUES(1);
CREATE TABLE turns (
            tenant TEXT NOT NULL,
            thread TEXT NOT NULL,
            position BIGINT NOT NULL,
            id TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, thread, position)
        );
INSERT INTO "turns" VALUES('acme','support-42',0,'turn_1','{"id":"turn_1","role":"user","parts":[{"type":"text","text":"Where is my parcel?"},{"type":"file","file":{"id":"file_1","name":"parcel.png","media_type":"image/png","size_bytes":70,"sha256":"00"}}],"created_at":"2026-03-01T12:00:05.123456Z"}');
INSERT INTO "turns" VALUES('acme','support-42',1,'turn_2','{"id":"turn_2","role":"assistant","parts":[{"type":"reasoning","text":"","provider_data":{"provider":"p","json":"{\"signature\":\"x\"}"}},{"type":"tool_call","id":"call_0","name":"track","arguments":"{\"half"}],"created_at":"2026-03-01T12:00:05.123456Z","model":"m"}');
INSERT INTO "turns" VALUES('acme','support-42',2,'turn_3','{"id":"turn_3","role":"tool","parts":[{"type":"tool_result","call_id":"call_0","content":"a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, a long result, "}],"created_at":"2026-03-01T12:00:05.123456Z"}');
INSERT INTO "turns" VALUES('acme','support-42',3,'turn_4','{"id":"turn_4","role":"assistant","parts":[{"type":"text","text":"On its way 🚚;   nul: \u0000"}],"created_at":"2026-03-01T12:00:05.123456Z","model":"m","usage":{"input_tokens":9,"output_tokens":3},"status":"incomplete","ended":"length"}');
INSERT INTO "turns" VALUES('bolt','support-42',0,'turn_1','{"id":"turn_1","role":"user","parts":[{"type":"text","text":"of another tenant"}],"created_at":"2026-03-01T12:00:05.123456Z"}');
CREATE INDEX threads_changed ON threads (tenant, changed, id);
CREATE UNIQUE INDEX turns_id ON turns (tenant, id);
CREATE UNIQUE INDEX calls_active ON calls (tenant, thread) WHERE state = 'active';
COMMIT;
