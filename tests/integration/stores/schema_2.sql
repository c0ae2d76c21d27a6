-- A database of schema version 2 with real rows, one of them a run that its process left behind.
-- It stays as it is when the schema moves on.
BEGIN TRANSACTION;
CREATE TABLE calls (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            thread TEXT NOT NULL,
            state TEXT NOT NULL,
            owner TEXT NOT NULL,
            body TEXT NOT NULL, epoch BIGINT NOT NULL DEFAULT 0, begun BIGINT NOT NULL DEFAULT 0, key TEXT, first BIGINT,
            PRIMARY KEY (tenant, id)
        );
INSERT INTO "calls" VALUES('acme','call_01a22db341c2747f8029babe55ada101','support-42','answered','boot_01a22db341c175bf9fc8ff344739d0d5','{"id":"call_01a22db341c2747f8029babe55ada101","thread":"support-42","kind":"ask","state":"answered","owner":"boot_01a22db341c175bf9fc8ff344739d0d5","position":0,"created_at":"2026-11-30T18:24:12.226477Z","user_turn":{"id":"turn_01a22db341c27898b85251584f115b6d","role":"user","parts":[{"type":"text","text":"Hello?"}],"created_at":"2026-11-30T18:24:12.226307Z"},"user":"u1","options":{"model":null,"temperature":null,"top_p":null,"max_tokens":null,"stop":null,"seed":null,"tool_choice":null,"parallel_tool_calls":null,"timeout_s":null,"extra_body":null,"extra_headers":null},"limits":{"rounds_max":24,"calls_max":128,"tokens_max":null,"time_max_s":900.0},"ended_at":"2026-11-30T18:24:12.229308Z","text":"Hi.","usage":{"input_tokens":20,"output_tokens":3},"added":2}',0,1,NULL,0);
INSERT INTO "calls" VALUES('acme','run_01a22db341c872e38048ffd6449f1aaa','support-42','answered','boot_01a22db341c175bf9fc8ff344739d0d5','{"id":"run_01a22db341c872e38048ffd6449f1aaa","thread":"support-42","kind":"run","state":"answered","owner":"boot_01a22db341c175bf9fc8ff344739d0d5","position":2,"created_at":"2026-11-30T18:24:12.232847Z","user_turn":{"id":"turn_01a22db341c8750ea9659ad019d14f0a","role":"user","parts":[{"type":"text","text":"Twice 21?"}],"created_at":"2026-11-30T18:24:12.232573Z"},"user":"u1","options":{"model":null,"temperature":null,"top_p":null,"max_tokens":null,"stop":null,"seed":null,"tool_choice":null,"parallel_tool_calls":null,"timeout_s":null,"extra_body":null,"extra_headers":null},"tools":[{"name":"double","description":"Double a number.","parameters":{"type":"object","properties":{"number":{"type":"integer"}},"required":["number"],"additionalProperties":false}}],"needs":[{"name":"double","schema_hash":"04db0fa7ba768cb7"}],"limits":{"rounds_max":24,"calls_max":128,"tokens_max":null,"time_max_s":900.0},"streamed":true,"ended_at":"2026-11-30T18:24:12.241630Z","text":"It is 42.","usage":{"input_tokens":30,"output_tokens":5},"added":4}',0,2,NULL,2);
INSERT INTO "calls" VALUES('acme','call_01a22db341d37eaaa3f2b04da5eb7c6e','keyed','answered','boot_01a22db341c175bf9fc8ff344739d0d5','{"id":"call_01a22db341d37eaaa3f2b04da5eb7c6e","thread":"keyed","kind":"ask","state":"answered","owner":"boot_01a22db341c175bf9fc8ff344739d0d5","position":0,"created_at":"2026-11-30T18:24:12.243818Z","user_turn":{"id":"turn_01a22db341d37f188674758bcf7fc857","role":"user","parts":[{"type":"text","text":"Once?"}],"created_at":"2026-11-30T18:24:12.243707Z"},"key":"k1","body_hash":"ecece8808168c10300000d6baf4a8d9d1485e1ed632001e084e2484cdca8da86","options":{"model":null,"temperature":null,"top_p":null,"max_tokens":null,"stop":null,"seed":null,"tool_choice":null,"parallel_tool_calls":null,"timeout_s":null,"extra_body":null,"extra_headers":null},"limits":{"rounds_max":24,"calls_max":128,"tokens_max":null,"time_max_s":900.0},"ended_at":"2026-11-30T18:24:12.245960Z","text":"keyed","usage":{"input_tokens":20,"output_tokens":3},"added":2}',0,3,'k1',0);
INSERT INTO "calls" VALUES('bolt','call_01a22db341d779dc8298b996348f7e00','support-42','incomplete','boot_01a22db341c175bf9fc8ff344739d0d5','{"id":"call_01a22db341d779dc8298b996348f7e00","thread":"support-42","kind":"ask","state":"incomplete","owner":"boot_01a22db341c175bf9fc8ff344739d0d5","position":0,"created_at":"2026-11-30T18:24:12.247922Z","user_turn":{"id":"turn_01a22db341d77adea4c9740c547920b6","role":"user","parts":[{"type":"text","text":"Cut?"}],"created_at":"2026-11-30T18:24:12.247800Z"},"options":{"model":null,"temperature":null,"top_p":null,"max_tokens":null,"stop":null,"seed":null,"tool_choice":null,"parallel_tool_calls":null,"timeout_s":null,"extra_body":null,"extra_headers":null},"limits":{"rounds_max":24,"calls_max":128,"tokens_max":null,"time_max_s":900.0},"ended_at":"2026-11-30T18:24:12.250394Z","reason":"length","text":"par","added":2}',0,1,NULL,0);
INSERT INTO "calls" VALUES('acme','run_01a22db341dc706ca2a5f26d709ef6a6','lost','active','boot_01a22db341c175bf9fc8ff344739d0d5','{"id":"run_01a22db341dc706ca2a5f26d709ef6a6","thread":"lost","kind":"run","state":"active","owner":"boot_01a22db341c175bf9fc8ff344739d0d5","position":0,"created_at":"2026-11-30T18:24:12.253169Z","user_turn":{"id":"turn_01a22db341dd7a73be049f79b7d292fc","role":"user","parts":[{"type":"text","text":"Twice 4?"}],"created_at":"2026-11-30T18:24:12.253023Z"},"options":{"model":null,"temperature":null,"top_p":null,"max_tokens":null,"stop":null,"seed":null,"tool_choice":null,"parallel_tool_calls":null,"timeout_s":null,"extra_body":null,"extra_headers":null},"tools":[{"name":"double","description":"Double a number.","parameters":{"type":"object","properties":{"number":{"type":"integer"}},"required":["number"],"additionalProperties":false}}],"needs":[{"name":"double","schema_hash":"04db0fa7ba768cb7"}],"limits":{"rounds_max":24,"calls_max":128,"tokens_max":null,"time_max_s":900.0}}',0,4,NULL,NULL);
CREATE TABLE events (
            tenant TEXT NOT NULL,
            call TEXT NOT NULL,
            first BIGINT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, call, first)
        );
INSERT INTO "events" VALUES('acme','run_01a22db341c872e38048ffd6449f1aaa',0,'[{"type":"reasoning","text":"hm"},{"type":"text","text":"Let me see."}]');
INSERT INTO "events" VALUES('acme','run_01a22db341c872e38048ffd6449f1aaa',2,'[{"type":"tool_started","call_id":"c0","name":"double","arguments":"{\"number\":21}"}]');
INSERT INTO "events" VALUES('acme','run_01a22db341c872e38048ffd6449f1aaa',3,'[{"type":"tool_ended","call_id":"c0","name":"double","content":"42","is_error":false},{"type":"text","text":"It is 42."}]');
CREATE TABLE ledger (
            tenant TEXT NOT NULL,
            id TEXT NOT NULL,
            call TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, id)
        );
INSERT INTO "ledger" VALUES('acme','use_01a22db341c574b799c0cb929142ef38','call_01a22db341c2747f8029babe55ada101','{"id":"use_01a22db341c574b799c0cb929142ef38","call":"call_01a22db341c2747f8029babe55ada101","model":"m1","usage":{"input_tokens":20,"output_tokens":3},"outcome":"answered","created_at":"2026-11-30T18:24:12.229301Z"}');
INSERT INTO "ledger" VALUES('acme','use_01a22db341cb7c798daf3be6ebdac342','run_01a22db341c872e38048ffd6449f1aaa','{"id":"use_01a22db341cb7c798daf3be6ebdac342","call":"run_01a22db341c872e38048ffd6449f1aaa","model":"m1","usage":{"input_tokens":10,"output_tokens":2},"outcome":"tool_calls","created_at":"2026-11-30T18:24:12.235416Z"}');
INSERT INTO "ledger" VALUES('acme','use_01a22db341d178928736c9965f2ae00b','run_01a22db341c872e38048ffd6449f1aaa','{"id":"use_01a22db341d178928736c9965f2ae00b","call":"run_01a22db341c872e38048ffd6449f1aaa","model":"m1","usage":{"input_tokens":20,"output_tokens":3},"outcome":"answered","created_at":"2026-11-30T18:24:12.241612Z"}');
INSERT INTO "ledger" VALUES('acme','use_01a22db341d5751ca4e2115090d0e55f','call_01a22db341d37eaaa3f2b04da5eb7c6e','{"id":"use_01a22db341d5751ca4e2115090d0e55f","call":"call_01a22db341d37eaaa3f2b04da5eb7c6e","model":"m1","usage":{"input_tokens":20,"output_tokens":3},"outcome":"answered","created_at":"2026-11-30T18:24:12.245954Z"}');
INSERT INTO "ledger" VALUES('bolt','use_01a22db341da7ff08afe3ab0fc7958fd','call_01a22db341d779dc8298b996348f7e00','{"id":"use_01a22db341da7ff08afe3ab0fc7958fd","call":"call_01a22db341d779dc8298b996348f7e00","model":"m1","usage":null,"outcome":"length","created_at":"2026-11-30T18:24:12.250387Z"}');
INSERT INTO "ledger" VALUES('acme','use_01a22db341e37ecc9aa261fbca6e78d9','run_01a22db341dc706ca2a5f26d709ef6a6','{"id":"use_01a22db341e37ecc9aa261fbca6e78d9","call":"run_01a22db341dc706ca2a5f26d709ef6a6","model":"m1","usage":{"input_tokens":10,"output_tokens":2},"outcome":"tool_calls","created_at":"2026-11-30T18:24:12.259265Z"}');
CREATE TABLE steps (
            tenant TEXT NOT NULL,
            call TEXT NOT NULL,
            number BIGINT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, call, number)
        );
INSERT INTO "steps" VALUES('acme','run_01a22db341c872e38048ffd6449f1aaa',0,'{"number":0,"kind":"model","turn":{"id":"turn_01a22db341cb7c45a6ace9e3eef7e7a0","role":"assistant","parts":[{"type":"reasoning","text":"hm"},{"type":"text","text":"Let me see."},{"type":"tool_call","id":"c0","name":"double","arguments":"{\"number\":21}"}],"created_at":"2026-11-30T18:24:12.235375Z","model":"m1"},"usage":{"input_tokens":10,"output_tokens":2},"events":2}');
INSERT INTO "steps" VALUES('acme','run_01a22db341c872e38048ffd6449f1aaa',1,'{"number":1,"kind":"tool_start","place":0}');
INSERT INTO "steps" VALUES('acme','run_01a22db341c872e38048ffd6449f1aaa',2,'{"number":2,"kind":"tool_result","turn":{"id":"turn_01a22db341cf77deb292f6eae84d4b44","role":"tool","parts":[{"type":"tool_result","call_id":"c0","content":"42","name":"double"}],"created_at":"2026-11-30T18:24:12.239270Z"},"place":0}');
INSERT INTO "steps" VALUES('acme','run_01a22db341dc706ca2a5f26d709ef6a6',0,'{"number":0,"kind":"model","turn":{"id":"turn_01a22db341e370f0b09284f6d9b64efe","role":"assistant","parts":[{"type":"tool_call","id":"c0","name":"double","arguments":"{\"number\":4}"}],"created_at":"2026-11-30T18:24:12.259230Z","model":"m1"},"usage":{"input_tokens":10,"output_tokens":2}}');
INSERT INTO "steps" VALUES('acme','run_01a22db341dc706ca2a5f26d709ef6a6',1,'{"number":1,"kind":"tool_start","place":0}');
INSERT INTO "steps" VALUES('acme','run_01a22db341dc706ca2a5f26d709ef6a6',2,'{"number":2,"kind":"tool_result","turn":{"id":"turn_01a22db341e973e18d59c830d23e2780","role":"tool","parts":[{"type":"tool_result","call_id":"c0","content":"8","name":"double"}],"created_at":"2026-11-30T18:24:12.265169Z"},"place":0}');
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
INSERT INTO "threads" VALUES('acme','support-42',6,2,NULL,'u1',1796063052229308,1796063052241630);
INSERT INTO "threads" VALUES('acme','keyed',2,3,NULL,NULL,1796063052245960,1796063052245960);
INSERT INTO "threads" VALUES('bolt','support-42',2,1,NULL,NULL,1796063052250394,1796063052250394);
CREATE TABLE turngate_schema (version INTEGER NOT NULL PRIMARY KEY);
INSERT INTO "turngate_schema" VALUES(1);
INSERT INTO "turngate_schema" VALUES(2);
CREATE TABLE turns (
            tenant TEXT NOT NULL,
            thread TEXT NOT NULL,
            position BIGINT NOT NULL,
            id TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (tenant, thread, position)
        );
INSERT INTO "turns" VALUES('acme','support-42',0,'turn_01a22db341c27898b85251584f115b6d','{"id":"turn_01a22db341c27898b85251584f115b6d","role":"user","parts":[{"type":"text","text":"Hello?"}],"created_at":"2026-11-30T18:24:12.226307Z"}');
INSERT INTO "turns" VALUES('acme','support-42',1,'turn_01a22db341c575a7b75ba7096d34c68a','{"id":"turn_01a22db341c575a7b75ba7096d34c68a","role":"assistant","parts":[{"type":"text","text":"Hi."}],"created_at":"2026-11-30T18:24:12.229263Z","model":"m1","usage":{"input_tokens":20,"output_tokens":3}}');
INSERT INTO "turns" VALUES('acme','support-42',2,'turn_01a22db341c8750ea9659ad019d14f0a','{"id":"turn_01a22db341c8750ea9659ad019d14f0a","role":"user","parts":[{"type":"text","text":"Twice 21?"}],"created_at":"2026-11-30T18:24:12.232573Z"}');
INSERT INTO "turns" VALUES('acme','support-42',3,'turn_01a22db341cb7c45a6ace9e3eef7e7a0','{"id":"turn_01a22db341cb7c45a6ace9e3eef7e7a0","role":"assistant","parts":[{"type":"reasoning","text":"hm"},{"type":"text","text":"Let me see."},{"type":"tool_call","id":"c0","name":"double","arguments":"{\"number\":21}"}],"created_at":"2026-11-30T18:24:12.235375Z","model":"m1"}');
INSERT INTO "turns" VALUES('acme','support-42',4,'turn_01a22db341cf77deb292f6eae84d4b44','{"id":"turn_01a22db341cf77deb292f6eae84d4b44","role":"tool","parts":[{"type":"tool_result","call_id":"c0","content":"42","name":"double"}],"created_at":"2026-11-30T18:24:12.239270Z"}');
INSERT INTO "turns" VALUES('acme','support-42',5,'turn_01a22db341d1712f96b6c44d86cd0b81','{"id":"turn_01a22db341d1712f96b6c44d86cd0b81","role":"assistant","parts":[{"type":"text","text":"It is 42."}],"created_at":"2026-11-30T18:24:12.241575Z","model":"m1","usage":{"input_tokens":30,"output_tokens":5}}');
INSERT INTO "turns" VALUES('acme','keyed',0,'turn_01a22db341d37f188674758bcf7fc857','{"id":"turn_01a22db341d37f188674758bcf7fc857","role":"user","parts":[{"type":"text","text":"Once?"}],"created_at":"2026-11-30T18:24:12.243707Z"}');
INSERT INTO "turns" VALUES('acme','keyed',1,'turn_01a22db341d572baa724b2f56d81ed5b','{"id":"turn_01a22db341d572baa724b2f56d81ed5b","role":"assistant","parts":[{"type":"text","text":"keyed"}],"created_at":"2026-11-30T18:24:12.245919Z","model":"m1","usage":{"input_tokens":20,"output_tokens":3}}');
INSERT INTO "turns" VALUES('bolt','support-42',0,'turn_01a22db341d77adea4c9740c547920b6','{"id":"turn_01a22db341d77adea4c9740c547920b6","role":"user","parts":[{"type":"text","text":"Cut?"}],"created_at":"2026-11-30T18:24:12.247800Z"}');
INSERT INTO "turns" VALUES('bolt','support-42',1,'turn_01a22db341da7060ba87a31faaff2bec','{"id":"turn_01a22db341da7060ba87a31faaff2bec","role":"assistant","parts":[{"type":"text","text":"par"}],"created_at":"2026-11-30T18:24:12.250343Z","model":"m1","status":"incomplete","ended":"length"}');
CREATE INDEX threads_changed ON threads (tenant, changed, id);
CREATE UNIQUE INDEX turns_id ON turns (tenant, id);
CREATE UNIQUE INDEX calls_active ON calls (tenant, thread) WHERE state = 'active';
CREATE UNIQUE INDEX calls_key ON calls (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX calls_begun ON calls (tenant, begun, id);
CREATE INDEX calls_of_thread ON calls (tenant, thread, begun, id);
COMMIT;
