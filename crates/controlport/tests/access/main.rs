//! Every route of the document by every kind of caller, against the matrix that is meant; and what each user is
//! limited to.

mod place;
mod private;
mod usage;

use api::control::ErrorCode;
use api::people::{IssuedToken, Role, TokenList, TokenRequest};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use controlport::{Access, TokensAsked, UserLimits};
use place::{Place, quota};
use std::collections::BTreeSet;
use std::path::Path;
use tower::ServiceExt;

/// The callers that each route admits, in this order: tokens of the roles admin, user, read-only, node, and the secret of a node that joined.
const MATRIX: &[(&str, &str, [bool; 5])] = &[
    ("get", "/healthz", [true, true, true, true, true]),
    ("get", "/openapi.json", [true, true, true, true, true]),
    ("get", "/metrics", [true, true, true, true, true]),
    ("get", "/v1/jobs", [true, true, true, false, false]),
    ("post", "/v1/jobs", [true, true, false, false, false]),
    ("post", "/v1/jobs/batch", [true, true, false, false, false]),
    ("post", "/v1/flows", [true, true, false, false, false]),
    ("get", "/v1/jobs/{job}", [true, true, true, false, false]),
    ("get", "/v1/jobs/{job}/logs", [true, true, false, false, false]),
    ("get", "/v1/jobs/{job}/wait", [true, true, true, false, false]),
    ("get", "/v1/jobs/{job}/progress", [true, true, true, false, false]),
    ("get", "/v1/jobs/{job}/report", [true, true, true, false, false]),
    ("post", "/v1/jobs/{job}/cancel", [true, true, false, false, false]),
    ("post", "/v1/jobs/{job}/brief", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/places", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/stored-files", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/stored-output/places", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/stored-output/commit", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/boundaries", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/fsck", [true, true, false, false, false]),
    ("post", "/v1/gc", [true, true, false, false, false]),
    ("post", "/v1/files/missing", [true, true, false, false, false]),
    ("put", "/v1/files/{sha256}", [true, true, false, false, false]),
    ("get", "/v1/files/{sha256}", [false, false, false, false, true]),
    ("post", "/v1/intermediate-files", [true, true, false, false, false]),
    ("get", "/v1/intermediate-files", [true, true, false, false, false]),
    ("post", "/v1/intermediate-files/open", [true, true, false, false, false]),
    ("post", "/v1/intermediate-files/remove", [true, true, false, false, false]),
    ("post", "/v1/intermediate-files/change", [true, true, false, false, false]),
    ("post", "/v1/nodes/{node}/intermediate-files", [false, false, false, false, true]),
    ("post", "/v1/stored-files/find", [true, true, true, false, false]),
    ("post", "/v1/stored-files/list", [true, true, true, false, false]),
    ("post", "/v1/stored-files/lease", [true, true, true, false, false]),
    ("post", "/v1/stored-files/change", [true, true, false, false, false]),
    ("post", "/v1/stored-files/commits", [true, true, true, false, false]),
    ("post", "/v1/stored-files/puts", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/known", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/numbers", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/places", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/files", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/commit", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/abandon", [true, true, false, false, false]),
    ("post", "/v1/nodes/{node}/stored-files", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/stored-files/parts", [false, false, false, false, true]),
    ("get", "/v1/nodes", [true, true, true, false, false]),
    ("post", "/v1/nodes", [true, false, false, true, false]),
    ("post", "/v1/nodes/admission", [true, false, false, true, false]),
    ("post", "/v1/nodes/{node}/poll", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/kept", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/checked", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/struck", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/seen", [false, false, false, false, true]),
    ("post", "/v1/seen", [true, true, false, false, false]),
    ("post", "/v1/nodes/{node}/leave", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/data-tokens", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/drain", [true, false, false, false, false]),
    ("post", "/v1/nodes/{node}/drill", [true, false, false, false, false]),
    ("get", "/v1/jobs/{job}/placements", [true, true, true, false, false]),
    ("get", "/v1/jobs/{job}/runs", [true, true, true, false, false]),
    ("post", "/v1/lineage", [true, true, true, false, false]),
    ("get", "/v1/usage", [true, true, true, false, false]),
    ("post", "/v1/state", [true, true, true, false, false]),
    ("get", "/v1/tokens", [true, false, false, false, false]),
    ("post", "/v1/tokens", [true, false, false, false, false]),
    ("post", "/v1/tokens/{token}/revoke", [true, false, false, false, false]),
    ("get", "/v1/groups", [true, true, true, false, false]),
    ("post", "/v1/groups", [true, false, false, false, false]),
    ("post", "/v1/groups/{group}/delete", [true, false, false, false, false]),
    ("post", "/v1/groups/{group}/members", [true, false, false, false, false]),
    ("post", "/v1/groups/{group}/members/remove", [true, false, false, false, false]),
];
const ONLY_NODES: [bool; 5] = [false, false, false, false, true];
/// Open to whoever has no token at all.
const OPEN: [&str; 3] = ["/healthz", "/metrics", "/openapi.json"];

/// Routes of the document, and the document itself.
fn routes() -> BTreeSet<(String, String)> {
    let document: serde_json::Value = serde_json::from_str(&controlport::openapi_text()).expect("JSON");
    let mut routes = BTreeSet::from([("get".to_string(), "/openapi.json".to_string())]);
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let methods = methods.as_object().expect("methods");
        routes.extend(methods.keys().map(|method| (method.clone(), path.clone())));
    }
    routes
}

/// Whether only nodes that have joined may use it.
fn is_of_nodes(method: &str, path: &str) -> bool {
    MATRIX.iter().any(|row| (row.0, row.1) == (method, path) && row.2 == ONLY_NODES)
}

fn is_refused(code: Option<ErrorCode>) -> bool {
    matches!(code, Some(ErrorCode::Unauthenticated | ErrorCode::Forbidden))
}

#[test]
fn every_route_by_every_caller() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let good = Role::ALL.map(|role| place.token(role.word(), role, None).token);
    let expired = place.token("late", Role::Admin, Some(0)).token;
    let revoked = place.token("gone", Role::Admin, None);
    place.runtime.block_on(place.server.revoke_token(revoked.name.clone())).expect("a token");
    // What the route does, which reads the tokens anew.
    let again = place.code("post", &format!("/v1/tokens/{}/revoke", revoked.name), Some(&good[0]), "");
    assert_eq!(again, None);
    let stranger = trust::Secret::random().expect("randomness").text();
    let bad = ["no token", stranger.as_str(), expired.as_str(), revoked.token.as_str()];
    let bad = [Some(bad[0]), Some(bad[1]), Some(bad[2]), Some(bad[3]), None];
    let (node, secret) = place.join("n1", Some(&good[3]));
    let mut tried = BTreeSet::new();
    for (method, path) in routes() {
        let row = MATRIX.iter().find(|(m, p, _)| (*m, *p) == (method.as_str(), path.as_str()));
        let (_, _, expected) = row.unwrap_or_else(|| panic!("{method} {path} is not in the matrix"));
        let uri = |node: u32| {
            path.replace("{job}", "999")
                .replace("{node}", &node.to_string())
                .replace("{token}", "x")
                .replace("{group}", "x")
        };
        let callers = Role::ALL.iter().map(|role| role.word()).chain(["a node itself"]);
        for ((caller, token), expected) in callers.zip(good.iter().chain([&secret])).zip(expected) {
            let code = place.code(&method, &uri(node), Some(token), "{\"unknown\": 1}");
            assert_eq!(!is_refused(code), *expected, "{method} {path} by {caller}: {code:?}");
            if !expected {
                assert_eq!(code, Some(ErrorCode::Forbidden), "{method} {path} by {caller}");
            }
        }
        // A node speaks for no other one.
        if path.contains("{node}") {
            let code = place.code(&method, &uri(node + 1), Some(&secret), "{\"unknown\": 1}");
            assert_eq!(code, Some(ErrorCode::Forbidden), "{method} {path} of another node");
        }
        let uri = uri(999);
        for token in bad {
            let code = place.code(&method, &uri, token, "{\"unknown\": 1}");
            let expected = match token.is_none() && OPEN.contains(&path.as_str()) {
                true => None,
                false => Some(ErrorCode::Unauthenticated),
            };
            assert_eq!(code, expected, "{method} {path} with {token:?}");
        }
        tried.insert((method, path));
    }
    assert_eq!(tried.len(), MATRIX.len(), "the matrix has rows of routes that are no more");
}

/// The positive case is a program on a real node, in the black-box tests.
#[test]
fn nodes_speak_only_for_programs_they_run() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let ann = place.token("ann", Role::User, None).token;
    let rack = place.token("rack", Role::Node, None).token;
    let (node, secret) = place.join("n1", Some(&rack));
    let job = place.submit(&ann, 1).expect("a job").first.to_string();
    let code = |path: &str, token: &str, job: Option<&str>| {
        place.ask_for("get", path, Some(token), job, Body::empty()).1
    };
    let files = "/v1/intermediate-files";
    assert_eq!(code(files, &secret, None), Some(ErrorCode::Forbidden));
    // It waits: the node has not asked for it.
    assert!(code(files, &secret, Some(&job)).is_some());
    assert_eq!(code(files, &secret, Some("999")), Some(ErrorCode::NotFound));
    assert_eq!(code(files, &secret, Some("1x")), Some(ErrorCode::BadRequest));
    let find = |job: Option<&str>| {
        place.ask_for("post", "/v1/stored-files/find", Some(&secret), job, "{\"path\": \"\"}").1
    };
    assert_eq!(find(None), Some(ErrorCode::Forbidden));
    assert!(find(Some(&job)).is_some());
    assert_eq!(find(Some("999")), Some(ErrorCode::NotFound));
    let reports = format!("/v1/nodes/{node}/stored-files/parts");
    assert_eq!(
        place.ask_for("post", &reports, Some(&secret), Some("999"), "{").1,
        place.ask_for("post", &reports, Some(&secret), None, "{").1,
    );
    // The header gives no other route, and nothing to other callers.
    assert_eq!(code("/v1/jobs", &secret, Some(&job)), Some(ErrorCode::Forbidden));
    assert_eq!(code(files, &rack, Some(&job)), Some(ErrorCode::Forbidden));
    assert_eq!(code(files, &ann, Some("999")), None);
}

#[test]
fn without_tokens_the_caller_is_the_administrator() {
    let place = Place::new(TokensAsked::Never, UserLimits::default());
    let (node, secret) = place.join("n1", None);
    for (method, path) in routes() {
        let uri = path
            .replace("{job}", "999")
            .replace("{node}", &node.to_string())
            .replace("{token}", "x")
            .replace("{group}", "x");
        let of_nodes = is_of_nodes(&method, &path);
        let code = |token| place.code(&method, &uri, token, "{\"unknown\": 1}");
        // A node is known by its secret all the same.
        assert_eq!(is_refused(code(None)), of_nodes, "{method} {path}: {:?}", code(None));
        assert!(!of_nodes || !is_refused(code(Some(&secret))), "{method} {path}: {:?}", code(Some(&secret)));
    }
}

#[test]
fn own_token_of_server_is_the_administrators() {
    let place = Place::new(TokensAsked::OwnOrIssued, UserLimits::default());
    let file = place.state.path().join("own.token");
    let keep = |place: &Place| {
        place.runtime.block_on(place.port.keep_own_token(&file)).expect("a token");
        std::fs::read_to_string(&file).expect("a file").trim().to_string()
    };
    let own = keep(&place);
    assert_eq!(keep(&place), own, "a good one stays");
    assert!(!place.runtime.block_on(place.port.has_admin_token()).expect("tokens"), "it is nobody's");
    let user = place.token("ann", Role::User, None).token;
    for (method, path) in routes() {
        let uri = path
            .replace("{job}", "999")
            .replace("{node}", "999")
            .replace("{token}", "x")
            .replace("{group}", "x");
        let code = place.code(&method, &uri, Some(&own), "{\"unknown\": 1}");
        assert_eq!(is_refused(code), is_of_nodes(&method, &path), "{method} {path}: {code:?}");
        let code = place.code(&method, &uri, None, "{\"unknown\": 1}");
        assert_eq!(!is_refused(code), OPEN.contains(&path.as_str()), "{method} {path}: {code:?}");
    }
    assert_eq!(place.code("get", "/v1/tokens", Some(&user), ""), Some(ErrorCode::Forbidden));
    let (_, _, body) = place.ask("get", "/v1/jobs", None, "");
    let answer = String::from_utf8(body).expect("text");
    assert!(answer.contains("--token-file") && answer.contains("--no-tokens"), "{answer}");
    // Its name is nobody else's, and a file that is damaged or has a token of another server is replaced.
    let named = TokenRequest { user: "@server".to_string(), role: Role::Admin, seconds: None };
    assert!(place.runtime.block_on(place.port.issue(named)).is_err());
    for other in ["damaged", user.as_str(), &trust::Secret::random().expect("randomness").text()] {
        std::fs::write(&file, other).expect("our own file");
        assert_ne!(keep(&place), other);
    }
    // Another port on the same store, as of a standby, admits it; one that wants tokens of people does not.
    for (tokens, expected) in [(TokensAsked::OwnOrIssued, true), (TokensAsked::Issued, false)] {
        let port = place.runtime.block_on(async {
            let access = Access { tokens, ..Access::default() };
            place.open(access).await.expect("a port")
        });
        let request = Request::builder().uri("/v1/jobs").header("authorization", format!("Bearer {own}"));
        let request = request.body(Body::empty()).expect("a request");
        let answer = place.runtime.block_on(controlport::router(port).oneshot(request));
        assert_eq!(answer.expect("routes always answer").status().is_success(), expected, "{tokens:?}");
    }
}

/// Whether a port admits a node to its poll, by its secret.
fn is_known(place: &Place, routes: &Router, (node, secret): &(u32, String)) -> bool {
    let request = Request::builder().method("POST").uri(format!("/v1/nodes/{node}/poll"));
    let request = request.header("authorization", format!("Bearer {secret}"));
    let request = request.body(Body::from("{\"unknown\": 1}")).expect("a request");
    let answer = place.runtime.block_on(routes.clone().oneshot(request)).expect("routes always answer");
    !matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

#[test]
fn revoking_a_token_ends_secrets_of_its_nodes() {
    let place = Place::new(TokensAsked::OwnOrIssued, UserLimits::default());
    let file = place.state.path().join("own.token");
    place.runtime.block_on(place.port.keep_own_token(&file)).expect("a token");
    let own = std::fs::read_to_string(&file).expect("a file").trim().to_string();
    let (rack, short) = (place.token("rack", Role::Node, None), place.token("short", Role::Node, Some(3600)));
    let (by_own, by_rack, by_short) = (
        place.join("n1", Some(&own)),
        place.join("n2", Some(&rack.token)),
        place.join("n3", Some(&short.token)),
    );
    let again = |tokens| {
        let access = Access { tokens, ..Access::default() };
        let port = place.runtime.block_on(async { place.open(access).await.expect("a port") });
        controlport::router(port)
    };
    // A port that opens later, as of a server that starts again and of a standby, knows them too.
    for routes in [place.routes.clone(), again(TokensAsked::OwnOrIssued)] {
        for node in [&by_own, &by_rack, &by_short] {
            assert!(is_known(&place, &routes, node), "{node:?}");
        }
        // Each speaks for itself.
        assert!(!is_known(&place, &routes, &(by_own.0, by_rack.1.clone())));
    }
    let people_only = again(TokensAsked::Issued);
    assert!(!is_known(&place, &people_only, &by_own) && is_known(&place, &people_only, &by_rack));
    let revoked = place.code("post", &format!("/v1/tokens/{}/revoke", rack.name), Some(&own), "");
    assert_eq!(revoked, None);
    for routes in [place.routes.clone(), again(TokensAsked::OwnOrIssued)] {
        assert!(!is_known(&place, &routes, &by_rack), "its token has been revoked");
        assert!(is_known(&place, &routes, &by_own) && is_known(&place, &routes, &by_short));
    }
}

#[test]
fn unknown_routes_say_so_to_anybody() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let admin = place.token("root", Role::Admin, None).token;
    let paths = ["/", "/v1", "/v1/jobs/", "/v1/jobs/1/2/3", "/v1/../metrics", "/v1/tokens/../jobs"];
    for path in paths {
        assert_eq!(place.code("get", path, Some(&admin), ""), Some(ErrorCode::NotFound), "{path}");
        let stranger = place.code("get", path, None, "");
        assert_eq!(stranger, Some(ErrorCode::NotFound), "{path}");
    }
    for (method, path) in [("delete", "/v1/jobs"), ("put", "/healthz"), ("patch", "/v1/tokens")] {
        assert_eq!(place.code(method, path, Some(&admin), ""), Some(ErrorCode::NotFound), "{method} {path}");
    }
}

#[test]
fn a_user_cancels_only_their_own_jobs() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let token = |user, role| place.token(user, role, None).token;
    let (ann, bob) = (token("ann", Role::User), token("bob", Role::User));
    let (root, eve) = (token("root", Role::Admin), token("eve", Role::ReadOnly));
    let job = place.submit(&ann, 2).expect("jobs").first;
    let list = place.ask("get", "/v1/jobs", Some(&eve), "").2;
    let list: api::history::JobList = serde_json::from_slice(&list).expect("a list");
    let users: Vec<_> = list.jobs.iter().map(|row| row.user.as_deref()).collect();
    assert_eq!(users, [Some("ann"), Some("ann")], "the name comes from the token");
    let cancel = |job: i64, token: &str| {
        place.code("post", &format!("/v1/jobs/{job}/cancel"), Some(token), "{\"reason\": \"test\"}")
    };
    assert_eq!(cancel(job.0, &bob), Some(ErrorCode::Forbidden));
    assert_eq!(cancel(job.0, &eve), Some(ErrorCode::Forbidden));
    // The same job, its number escaped: what the route would decode must not get past the question of whose it is.
    let escaped: String = job.0.to_string().bytes().map(|digit| format!("%{digit:x}")).collect();
    let path = format!("/v1/jobs/{escaped}/cancel");
    let answer = place.code("post", &path, Some(&bob), "{\"reason\": \"test\"}");
    assert_eq!(answer, Some(ErrorCode::NotFound));
    assert_eq!(cancel(job.0, &ann), None);
    assert_eq!(cancel(job.0 + 1, &root), None);
    assert_eq!(cancel(job.0 + 2, &bob), Some(ErrorCode::NotFound));
}

#[test]
fn users_check_only_their_own_kept_data() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let token = |user, role| place.token(user, role, None).token;
    let (ann, bob, root) = (token("ann", Role::User), token("bob", Role::User), token("root", Role::Admin));
    let job = place.submit(&ann, 1).expect("a job").first;
    let fsck = |job: i64, token: &str| place.code("post", &format!("/v1/jobs/{job}/fsck"), Some(token), "{}");
    assert_eq!(fsck(job.0, &bob), Some(ErrorCode::Forbidden));
    // It keeps nothing.
    assert_eq!(fsck(job.0, &ann), Some(ErrorCode::Refused));
    assert_eq!(fsck(job.0, &root), Some(ErrorCode::Refused));
    let unknown = place.code("post", &format!("/v1/jobs/{job}/fsck"), Some(&ann), "{\"check\": \"x\"}");
    assert_eq!(unknown, Some(ErrorCode::NotFound));
}

#[test]
fn jobs_of_a_user_are_limited() {
    let limits = UserLimits { quota: quota(3), ..UserLimits::default() };
    let place = Place::new(TokensAsked::Issued, limits);
    let token = |user, role| place.token(user, role, None).token;
    let (ann, bob) = (token("ann", Role::User), token("bob", Role::User));
    assert_eq!(place.submit(&ann, 4), Err(ErrorCode::TooMany));
    let first = place.submit(&ann, 3).expect("jobs").first;
    assert_eq!(place.submit(&ann, 1), Err(ErrorCode::TooMany));
    place.submit(&bob, 3).expect("another user has jobs of their own");
    place.submit(&token("root", Role::Admin), 100).expect("an administrator has no limit");
    let path = format!("/v1/jobs/{first}/cancel");
    assert_eq!(place.code("post", &path, Some(&ann), "{\"reason\": \"test\"}"), None);
    place.runtime.block_on(place.server.wait_job(first)).expect("a job that ends");
    place.submit(&ann, 1).expect("room for one more");
}

#[test]
fn requests_and_bytes_of_a_user_are_limited() {
    let limits = UserLimits { requests_per_second: 1, body_bytes_max: 1000, ..UserLimits::default() };
    let place = Place::new(TokensAsked::Issued, limits);
    let ann = place.token("ann", Role::User, None).token;
    let large = place.code("post", "/v1/jobs", Some(&ann), &"x".repeat(1001));
    assert_eq!(large, Some(ErrorCode::TooLarge));
    let codes: Vec<_> = (0..20).map(|_| place.code("get", "/v1/jobs", Some(&ann), "")).collect();
    assert_eq!(codes[0], None);
    assert!(codes.contains(&Some(ErrorCode::TooMany)), "{codes:?}");
    let root = place.token("root", Role::Admin, None).token;
    assert!((0..20).all(|_| place.code("get", "/v1/jobs", Some(&root), "").is_none()));
}

#[test]
fn changes_and_refusals_are_audited() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let ann = place.token("ann", Role::User, None).token;
    let job = place.submit(&ann, 1).expect("a job").first;
    for _ in 0..500 {
        assert_eq!(place.code("get", "/v1/tokens", Some(&ann), ""), Some(ErrorCode::Forbidden));
        assert_eq!(place.code("get", "/v1/jobs", None, ""), Some(ErrorCode::Unauthenticated));
    }
    assert_eq!(place.code("get", "/v1/jobs", Some(&ann), ""), None);
    assert_eq!(place.code("post", &format!("/v1/jobs/{job}/cancel"), Some(&ann), "{\"reason\": \"\"}"), None);
    let rows = place.audit();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (row.user.as_deref(), row.action.as_str(), row.target.as_str(), row.allowed))
        .collect();
    let cancelled = format!("/v1/jobs/{job}/cancel");
    let expected = [
        (Some("ann"), "POST /v1/jobs/batch", "/v1/jobs/batch", true),
        (Some("ann"), "GET /v1/tokens", "/v1/tokens", false),
        (None, "GET /v1/jobs", "/v1/jobs", false),
        (Some("ann"), "POST /v1/jobs/{job}/cancel", cancelled.as_str(), true),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn tokens_are_told_once_and_kept_as_hashes() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let root = place.token("root", Role::Admin, None);
    let create = |body: &str| place.ask("post", "/v1/tokens", Some(&root.token), body.to_string());
    let (status, _, body) = create("{\"user\": \"ann\", \"role\": \"user\", \"seconds\": 3600}");
    assert_eq!(status, StatusCode::OK);
    let ann: IssuedToken = serde_json::from_slice(&body).expect("a token");
    assert_eq!(place.code("get", "/v1/jobs", Some(&ann.token), ""), None);
    let wrong = [
        "{\"user\": \"ann\", \"role\": \"admin\"}",
        "{\"user\": \"\", \"role\": \"user\"}",
        "{\"user\": \"a b\", \"role\": \"user\"}",
        "{\"user\": \"../x\", \"role\": \"user\"}",
    ];
    for body in wrong {
        assert_eq!(create(body).1, Some(ErrorCode::Refused), "{body}");
    }
    assert_eq!(create("{\"user\": \"ann\", \"role\": \"king\"}").1, Some(ErrorCode::BadRequest));
    let list = place.ask("get", "/v1/tokens", Some(&root.token), "").2;
    let list: TokenList = serde_json::from_slice(&list).expect("a list");
    let names: Vec<_> = list.tokens.iter().map(|token| token.name.as_str()).collect();
    assert_eq!(names, [root.name.as_str(), ann.name.as_str()]);
    assert!(list.tokens[1].expires_ns > Some(list.tokens[1].created_ns));
    assert_eq!(
        place.code("post", "/v1/tokens/nothing/revoke", Some(&root.token), ""),
        Some(ErrorCode::NotFound)
    );
    let revoke = format!("/v1/tokens/{}/revoke", ann.name);
    assert_eq!(place.code("post", &revoke, Some(&root.token), ""), None);
    assert_eq!(place.code("get", "/v1/jobs", Some(&ann.token), ""), Some(ErrorCode::Unauthenticated));
    for token in [&root.token, &ann.token] {
        let digits = token.trim_start_matches("sailfish_");
        assert!(!holds(place.state.path(), digits.as_bytes()), "a secret lies in the state directory");
        let raw: Vec<u8> = (0..digits.len()).step_by(2).map(|at| byte(&digits[at..at + 2])).collect();
        assert!(!holds(place.state.path(), &raw), "the bytes of a secret lie in the state directory");
    }
}

fn byte(digits: &str) -> u8 {
    u8::from_str_radix(digits, 16).expect("two hex digits")
}

/// Whether any file of a directory holds these bytes.
fn holds(dir: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).expect("a directory").flatten().any(|entry| match entry.path() {
        path if path.is_dir() => holds(&path, bytes),
        path => {
            let content = std::fs::read(&path).unwrap_or_default();
            content.windows(bytes.len()).any(|window| window == bytes)
        }
    })
}
