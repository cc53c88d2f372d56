//! Private servers: each route and what it shows of others.

use crate::place::Place;
use crate::routes;
use api::control::{ErrorCode, JobBatch};
use api::people::Role;
use api::task::RunTask;
use api::{InputFile, JobKind, JobSpec, MapReduce, StoredContent};
use axum::http::StatusCode;
use controlport::{Access, TokensAsked, UserLimits};
use ids::JobId;
use serde_json::{Value, json};

/// The way in which a route of a private server hides rows of others.
enum Hides {
    /// Users may not ask it.
    NotAsked,
    /// It shows and takes no rows of users.
    NoRows(&'static str),
    /// It leaves rows of others out: this question shows the owner a row.
    LeavesOut(&'static str),
    /// These questions about a row of another are answered as those about a row that is not there.
    AsMissing(&'static [&'static str]),
}

/// All routes. In paths and bodies stand `{job}`, `{put}`, `{directory}` and `{name}` of the row.
const PRIVATE: &[(&str, &str, Hides)] = &[
    ("get", "/healthz", Hides::NoRows("")),
    ("get", "/openapi.json", Hides::NoRows("")),
    ("get", "/metrics", Hides::NoRows("")),
    ("get", "/v1/jobs", Hides::LeavesOut("")),
    ("post", "/v1/jobs", Hides::AsMissing(&["{of-files}", "{again}"])),
    ("post", "/v1/jobs/batch", Hides::NoRows(r#"{"name": "x", "tasks": []}"#)),
    ("post", "/v1/flows", Hides::AsMissing(&["{flow}"])),
    ("get", "/v1/jobs/{job}", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/logs", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/wait", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/progress", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/report", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/placements", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/runs", Hides::AsMissing(&[""])),
    ("post", "/v1/lineage", Hides::LeavesOut(r#"{"path": "/{name}", "direction": "up"}"#)),
    ("get", "/v1/usage", Hides::LeavesOut("by=job")),
    ("post", "/v1/jobs/{job}/cancel", Hides::AsMissing(&[r#"{"reason": "test"}"#])),
    ("post", "/v1/jobs/{job}/fsck", Hides::AsMissing(&["{}"])),
    ("post", "/v1/jobs/{job}/brief", Hides::NotAsked),
    ("post", "/v1/jobs/{job}/places", Hides::NotAsked),
    ("post", "/v1/jobs/{job}/stored-files", Hides::NotAsked),
    ("post", "/v1/jobs/{job}/stored-output/places", Hides::NotAsked),
    ("post", "/v1/jobs/{job}/stored-output/commit", Hides::NotAsked),
    ("post", "/v1/jobs/{job}/boundaries", Hides::NotAsked),
    ("post", "/v1/gc", Hides::AsMissing(&[r#"{"selection": {"jobs": [{job}]}}"#, r#"{"selection": "all"}"#])),
    ("post", "/v1/files/missing", Hides::NoRows(r#"{"sha256": []}"#)),
    ("put", "/v1/files/{sha256}", Hides::NoRows("")),
    ("get", "/v1/files/{sha256}", Hides::NotAsked),
    ("post", "/v1/intermediate-files", Hides::AsMissing(&[r#"{"name": "x", "job": {job}}"#])),
    ("get", "/v1/intermediate-files", Hides::LeavesOut("")),
    (
        "post",
        "/v1/intermediate-files/open",
        Hides::AsMissing(&[r#"{"name": "{name}"}"#, r#"{"name": "{name}", "user": "zelda"}"#]),
    ),
    (
        "post",
        "/v1/intermediate-files/remove",
        Hides::AsMissing(&[r#"{"name": "{name}"}"#, r#"{"name": "{name}", "user": "zelda"}"#]),
    ),
    (
        "post",
        "/v1/intermediate-files/change",
        Hides::AsMissing(&[
            r#"{"name": "{name}", "change": {"set_owner": {"user": "bob"}}}"#,
            r#"{"name": "{name}", "user": "zelda", "change": {"set_owner": {"user": "bob"}}}"#,
            r#"{"name": "{name}", "user": "zelda", "change": {"set_groups": {"read": {"group": "x"}, "write": "kept"}}}"#,
        ]),
    ),
    ("post", "/v1/nodes/{node}/intermediate-files", Hides::NotAsked),
    (
        "post",
        "/v1/stored-files/find",
        Hides::AsMissing(&[
            r#"{"path": "{name}"}"#,
            r#"{"path": "{name}/in", "reads": true}"#,
            r#"{"path": "{name}/in", "version": 1}"#,
        ]),
    ),
    ("post", "/v1/stored-files/list", Hides::LeavesOut(r#"{"directory": 1, "limit": 9, "parts": true}"#)),
    ("post", "/v1/stored-files/lease", Hides::NoRows(r#"{"lease": 1, "version": 1, "ends": true}"#)),
    (
        "post",
        "/v1/stored-files/change",
        Hides::AsMissing(&[
            r#"{"change": {"remove": {"path": "{name}", "recursive": false}}}"#,
            r#"{"change": {"rename": {"from": "{name}", "to": "x"}}}"#,
            r#"{"change": {"copy": {"from": "{name}/in", "to": "x"}}}"#,
            r#"{"change": {"set_groups": {"path": "{name}", "read": "kept", "write": "inherited", "recursive": true}}}"#,
            r#"{"change": {"set_owner": {"path": "{name}", "user": "bob", "recursive": true}}}"#,
        ]),
    ),
    ("post", "/v1/stored-files/commits", Hides::LeavesOut(r#"{"path": "/", "limit": 9}"#)),
    // Below a name that is taken.
    (
        "post",
        "/v1/stored-files/puts",
        Hides::AsMissing(&[r#"{"path": "secret/{name}/x", "is_directory": false, "keep_versions": 1}"#]),
    ),
    ("post", "/v1/stored-files/puts/known", Hides::AsMissing(&[r#"{"of": {put}}"#])),
    ("post", "/v1/stored-files/puts/numbers", Hides::AsMissing(&[r#"{"of": {put}, "count": 1}"#])),
    ("post", "/v1/stored-files/puts/places", Hides::AsMissing(&[r#"{"of": {put}, "bytes": 1}"#])),
    ("post", "/v1/stored-files/puts/files", Hides::AsMissing(&[r#"{"of": {put}, "files": []}"#])),
    ("post", "/v1/stored-files/puts/commit", Hides::AsMissing(&[r#"{"of": {put}}"#])),
    ("post", "/v1/stored-files/puts/abandon", Hides::AsMissing(&["{put}"])),
    ("post", "/v1/nodes/{node}/stored-files", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/stored-files/parts", Hides::NotAsked),
    ("get", "/v1/nodes", Hides::NoRows("")),
    ("post", "/v1/nodes", Hides::NotAsked),
    ("post", "/v1/nodes/admission", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/poll", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/kept", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/checked", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/struck", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/seen", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/leave", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/data-tokens", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/drain", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/drill", Hides::NotAsked),
    // All users may list directories of `node --sees`.
    ("post", "/v1/seen", Hides::NoRows(r#"{"path": "/somewhere"}"#)),
    // The console shows all tables.
    ("post", "/v1/state", Hides::NotAsked),
    ("get", "/v1/tokens", Hides::NotAsked),
    ("post", "/v1/tokens", Hides::NotAsked),
    ("post", "/v1/tokens/{token}/revoke", Hides::NotAsked),
    ("get", "/v1/groups", Hides::LeavesOut("")),
    ("post", "/v1/groups", Hides::NotAsked),
    ("post", "/v1/groups/{group}/delete", Hides::NotAsked),
    ("post", "/v1/groups/{group}/members", Hides::NotAsked),
    ("post", "/v1/groups/{group}/members/remove", Hides::NotAsked),
];

/// A row, and the same where there is none.
struct Row {
    job: String,
    put: String,
    name: &'static str,
}

impl Row {
    /// Returns a path or a body about the row.
    fn fill(&self, text: &str) -> String {
        let spec = |kind: JobKind, inputs: Vec<InputFile>| JobSpec { kind, inputs, ..JobSpec::named("x") };
        let job = JobId(self.job.parse().expect("a number"));
        let again = spec(MapReduce::ReduceAgain { source: job }.into(), Vec::new());
        let input = InputFile {
            path: format!("files:{}/in@1", self.name).into(),
            size_bytes: 0,
            mtime_ns: 0,
            compression: None,
            named: 0,
            object: None,
            stage_file: None,
            stored: Some(StoredContent::default()),
            content: None,
            seen: None,
        };
        let submission = |spec: &JobSpec| json!({ "spec": spec, "splits": [] });
        match text {
            "{of-files}" => submission(&spec(JobKind::default(), vec![input])).to_string(),
            "{again}" => submission(&again).to_string(),
            "{flow}" => json!({ "stages": [submission(&again)] }).to_string(),
            text => text.replace("{job}", &self.job).replace("{put}", &self.put).replace("{name}", self.name),
        }
    }

    /// Returns an answer about the row without names and numbers, which the question may have had.
    fn without(&self, (status, _, body): (StatusCode, Option<ErrorCode>, Vec<u8>)) -> String {
        let text = String::from_utf8(body).expect("text").replace(self.name, "").replace("secret", "");
        format!("{status} {}", text.replace(|c: char| c.is_ascii_digit(), ""))
    }
}

/// Makes a node that takes files, and rows of a user, all with the name `secret`.
fn rows_of_owner(place: &Place, owner: &str, root: &str) -> Row {
    let done = |method: &str, path: &str, token: &str, body: Value| {
        let (status, _, body) = place.ask(method, path, Some(token), body.to_string());
        assert_eq!(status, StatusCode::OK, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice::<Value>(&body).expect("JSON")
    };
    let rack = place.token("rack", Role::Node, None).token;
    let welcome = place.welcome("n1", Some(&rack));
    let (node, secret) = (welcome.node.0, welcome.secret.0);
    let disk = json!({
        "uuid": "a disk", "secret": "x", "is_empty": true, "total_bytes": 1 << 30, "free_bytes": 1 << 30,
        "room_bytes": 1 << 30, "takes_files": true,
    });
    let news = json!({ "incarnation": "1", "data_url": "", "disks": [disk] });
    done("post", &format!("/v1/nodes/{node}/stored-files"), &secret, news);
    let tasks = vec![RunTask { words: vec!["true".into()], ..RunTask::default() }];
    let batch = JobBatch { name: "secret".into(), tasks, user: String::new(), priority: 0 };
    let batch = serde_json::to_value(batch).expect("JSON");
    let job = done("post", "/v1/jobs/batch", owner, batch)["first"].to_string();
    let make = json!({ "change": { "make_directory": { "path": "secret/in", "parents": true } } });
    done("post", "/v1/stored-files/change", owner, make);
    let begin = json!({ "path": "secret/put", "is_directory": false, "keep_versions": 1 });
    let put = done("post", "/v1/stored-files/puts", owner, begin)["of"].to_string();
    done("post", "/v1/groups", root, json!({ "name": "secret" }));
    done("post", "/v1/groups/secret/members", root, json!({ "user": "zelda" }));
    // The node tells of its disk, and gets the job.
    let disk = json!({ "path": "/disk", "total_bytes": 1 << 30, "free_bytes": 1 << 30, "state": "usable" });
    let poll = json!({
        "incarnation": welcome.incarnation, "received": 0, "free_slots": [0], "finished": [], "report": { "disks": [disk] },
    });
    done("post", &format!("/v1/nodes/{node}/poll"), &secret, poll);
    done("post", "/v1/intermediate-files", owner, json!({ "name": "secret" }));
    place.remember_run("zelda", "secret", "/secret");
    place.account("zelda", JobId(job.parse().expect("a number")));
    Row { job, put, name: "secret" }
}

#[test]
fn private_servers_show_nothing_of_others() {
    let place = Place::with(Access { private: true, ..Access::default() });
    let token = |user, role| place.token(user, role, None).token;
    let (owner, root) = (token("zelda", Role::User), token("root", Role::Admin));
    let others = [token("bob", Role::User), token("eve", Role::ReadOnly)];
    let row = rows_of_owner(&place, &owner, &root);
    let missing = Row { job: "999".into(), put: r#"{"put":999,"session":1}"#.into(), name: "nothing" };
    for (method, path) in routes() {
        let decided = PRIVATE.iter().find(|row| (row.0, row.1) == (method.as_str(), path.as_str()));
        let (_, _, hides) = decided.unwrap_or_else(|| panic!("say how {method} {path} hides rows of others"));
        let uri = |row: &Row| {
            let uri = row.fill(&path).replace("{node}", "1").replace("{sha256}", &"0".repeat(64));
            uri.replace("{token}", "x").replace("{group}", "secret")
        };
        let ask = |row: &Row, token: &str, body: &str| match method.as_str() {
            // A question of it stands behind its path.
            "get" if !body.is_empty() && matches!(hides, Hides::LeavesOut(_)) => {
                place.ask(&method, &format!("{}?{body}", uri(row)), Some(token), "")
            }
            _ => place.ask(&method, &uri(row), Some(token), row.fill(body)),
        };
        for other in &others {
            match hides {
                Hides::NotAsked => {
                    // About a job, the answer is that there is none.
                    let (_, code, _) = ask(&row, other, r#"{"statement": "select 1", "rows_max": 1}"#);
                    let is_refused = matches!(code, Some(ErrorCode::Forbidden | ErrorCode::NotFound));
                    assert!(is_refused, "{method} {path}: {code:?}");
                }
                Hides::NoRows(body) => {
                    let text = String::from_utf8(ask(&row, other, body).2).expect("text");
                    let is_open =
                        path == "/openapi.json" || !(text.contains("secret") || text.contains("zelda"));
                    assert!(is_open, "{method} {path}: {text}");
                }
                Hides::LeavesOut(body) => {
                    let shown = |token: &str| String::from_utf8(ask(&row, token, body).2).expect("text");
                    assert!(shown(&owner).contains("secret"), "{method} {path}: {}", shown(&owner));
                    assert!(shown(&root).contains("secret"), "{method} {path}: {}", shown(&root));
                    let text = shown(other);
                    assert!(!text.contains("secret") && !text.contains("zelda"), "{method} {path}: {text}");
                }
                Hides::AsMissing(bodies) => {
                    for body in *bodies {
                        let told = row.without(ask(&row, other, body));
                        let of_none = missing.without(ask(&missing, other, body));
                        assert_eq!(told, of_none, "{method} {path} {body}");
                        assert!(!told.contains("bad_request"), "{method} {path} {body}: {told}");
                    }
                }
            }
        }
    }
    assert_eq!(PRIVATE.len(), routes().len(), "the table has rows of routes that are no more");
    check_sights(&place, &row, &owner, &others[0], &root);
}

/// Each request by everybody: the owner of an intermediate file, a member of a group, and another user.
#[test]
fn groups_open_intermediate_files() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let token = |user, role| place.token(user, role, None).token;
    let (owner, root) = (token("zelda", Role::User), token("root", Role::Admin));
    let (member, stranger) = (token("bob", Role::User), token("cid", Role::User));
    rows_of_owner(&place, &owner, &root);
    let body = json!({ "user": "bob" }).to_string();
    assert_eq!(place.code("post", "/v1/groups/secret/members", Some(&root), &body), None);
    let route = |verb: &str| format!("/v1/intermediate-files{verb}");
    let ask = |verb: &str, token: &str, more: Value| {
        let mut body = json!({ "name": "secret", "user": "zelda" });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        place.code("post", &route(verb), Some(token), &body.to_string())
    };
    let groups = |token: &str, read: Value, write: Value| {
        ask("/change", token, json!({ "change": { "set_groups": { "read": read, "write": write } } }))
    };
    let team = || json!({ "group": "secret" });
    let is_listed = |token: &str| {
        let (_, _, listed) = place.ask("get", &route(""), Some(token), "");
        String::from_utf8(listed).expect("text").contains("zelda")
    };
    // Whether each may see, replace and open the file; for the member it is as the owner says.
    let check = |reads: bool, writes: bool| {
        let refusal = |may: bool| (!may).then_some(ErrorCode::Forbidden);
        for (token, reads, writes) in
            [(&member, reads, writes), (&stranger, false, false), (&root, true, true)]
        {
            assert_eq!(is_listed(token), reads);
            assert_eq!(ask("/open", token, json!({})), refusal(reads));
            assert_eq!(ask("", token, json!({ "replace": true })), refusal(writes));
        }
        assert_eq!(ask("/open", &owner, json!({})), None);
    };
    check(false, false);
    for other in [&member, &stranger] {
        assert_eq!(groups(other, team(), json!("kept")), Some(ErrorCode::Forbidden));
    }
    assert_eq!(
        groups(&owner, json!({ "group": "none of that name" }), json!("kept")),
        Some(ErrorCode::Refused)
    );
    assert_eq!(groups(&owner, team(), json!("kept")), None);
    check(true, false);
    assert_eq!(groups(&member, json!("inherited"), team()), Some(ErrorCode::Forbidden));
    assert_eq!(groups(&owner, json!("inherited"), team()), None);
    // A file that replaces another one keeps its groups.
    check(true, true);
    assert_eq!(ask("", &member, json!({ "name": "another", "replace": true })), Some(ErrorCode::Forbidden));
    assert_eq!(ask("", &member, json!({})), Some(ErrorCode::Refused), "it exists");
    let give = |token: &str, user: &str| {
        ask("/change", token, json!({ "change": { "set_owner": { "user": user } } }))
    };
    for other in [&owner, &member] {
        assert_eq!(give(other, "bob"), Some(ErrorCode::Forbidden));
    }
    assert_eq!(give(&root, "a b"), Some(ErrorCode::Refused));
    let left = json!({ "user": "bob" }).to_string();
    assert_eq!(place.code("post", "/v1/groups/secret/members/remove", Some(&root), &left), None);
    check(false, false);
    assert_eq!(ask("/remove", &member, json!({})), Some(ErrorCode::Forbidden));
    assert_eq!(give(&root, "bob"), None);
    assert_eq!(ask("/remove", &member, json!({ "user": "bob" })), None);
    assert_eq!(ask("/open", &owner, json!({})), Some(ErrorCode::NotFound));
}

/// Checks that nothing was changed by those who asked, that its owner finds everything, and members of a group more than
/// before.
fn check_sights(place: &Place, row: &Row, owner: &str, other: &str, root: &str) {
    let bodies = [
        ("get", "/v1/jobs/{job}", ""),
        ("post", "/v1/stored-files/find", r#"{"path": "{name}/in"}"#),
        ("post", "/v1/stored-files/puts/known", r#"{"of": {put}}"#),
    ];
    for (method, path, body) in bodies {
        assert_eq!(place.code(method, &row.fill(path), Some(owner), &row.fill(body)), None, "{path}");
    }
    let code = |path: &str| {
        place.code("post", "/v1/stored-files/find", Some(other), &json!({ "path": path }).to_string())
    };
    assert_eq!(code("secret/in"), Some(ErrorCode::NotFound));
    // A group shows a directory with everything below it, also to a user who does not see those above.
    let body = json!({ "user": "bob" }).to_string();
    assert_eq!(place.code("post", "/v1/groups/secret/members", Some(root), &body), None);
    let set =
        json!({ "path": "secret/in", "read": { "group": "secret" }, "write": "kept", "recursive": false });
    let body = json!({ "change": { "set_groups": set } }).to_string();
    assert_eq!(place.code("post", "/v1/stored-files/change", Some(owner), &body), None);
    assert_eq!((code("secret"), code("secret/in")), (Some(ErrorCode::NotFound), None));
}
