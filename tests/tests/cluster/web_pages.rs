//! Pages of other web sites in a real browser: what they send has no effect, and they read nothing.

use blackbox::{Browser, Cluster, Questions, WebSite, exchange};
use serde_json::{Value, json};
use std::collections::HashMap;

/// A site on this machine that is none of ours.
const SITE: &str = "127.0.0.2:0";
/// The address where its page says that it is done, whatever address its name leads to then.
const DONE: &str = "127.0.0.3:0";
const ATTEMPTS: usize = 14;

/// A server that admits each program: only the rule about web pages is between a page and a program that runs as the user.
fn open_cluster() -> Cluster {
    Cluster::builder()
        .nodes(1)
        .server_command(|command| {
            command.arg("--no-tokens");
        })
        .start()
}

/// The page that tries everything on these routes, and the job that it wants to run.
fn page(cluster: &Cluster, ports: &Value, done: &WebSite) -> String {
    let mark = cluster.sandbox.path("mark");
    let task = json!({"words": ["touch", mark.to_str().expect("text")], "directory": "/", "env": []});
    let batch = json!({"name": "page", "priority": 0, "tasks": [task], "user": "page"}).to_string();
    let page = include_str!("web_pages.html");
    let page = page.replace("= BODY", &format!("= {}", Value::from(batch)));
    let page = page.replace("of PORTS", &format!("of {ports}"));
    page.replace("(SITE +", &format!("(\"http://{}\" +", done.address))
}

/// Waits for the end of the page; the answer is what it says that came of each attempt.
fn attempts(done: &WebSite, routes: usize) -> HashMap<String, String> {
    let told = done.told();
    assert_eq!(told.len(), routes * ATTEMPTS, "{told:?}");
    told
}

#[track_caller]
fn check_nothing_happened(cluster: &Cluster) {
    assert_eq!(cluster.jobs().count(), 0);
    assert!(!cluster.sandbox.path("mark").exists());
    cluster.server().wait_for_stderr("a request was refused");
}

#[test]
fn a_page_of_another_site_has_no_effect() {
    let cluster = open_cluster();
    let nodes = exchange(cluster.address(), "GET /v1/nodes", b"").expect("a server answers").json();
    let data_port = nodes.expect("nodes")["nodes"][0]["info"]["data_url"].clone();
    let ports = json!([[&cluster.url, "/v1/jobs/batch"], [data_port, "/data/v1/jobs/1/frames"]]);
    let done = WebSite::start(DONE, String::new(), None);
    let site = WebSite::start(SITE, page(&cluster, &ports, &done), None);
    let url = format!("http://{}/", site.address);
    let Some(_browser) = Browser::open(&url, "") else { return };
    for (name, outcome) in attempts(&done, 2) {
        // The browser keeps the answer to itself, or asks first and is told no.
        assert!(["blocked", "sent", "opaque 0"].contains(&outcome.as_str()), "{name}: {outcome}");
    }
    check_nothing_happened(&cluster);
    // The same message from a program runs.
    let body = json!({"name": "program", "priority": 0, "tasks": [{"words": ["true"], "directory": "/", "env": []}]});
    let head = "POST /v1/jobs/batch\ncontent-type: application/json";
    let answer = exchange(cluster.address(), head, body.to_string().as_bytes()).expect("a server answers");
    assert_eq!(answer.status, 200, "{}", answer.text());
    cluster.run(&["wait", "1"]).expect_success();
}

/// The page was loaded from its own site, whose name then leads to the server, at the same port: for the browser all is one site.
#[test]
fn page_with_rebound_name_changes_nothing() {
    let cluster = open_cluster();
    let port = cluster.address().rsplit_once(':').expect("a port").1.to_string();
    let own_site = format!("http://evil.example:{port}");
    let done = WebSite::start(DONE, String::new(), None);
    let page = page(&cluster, &json!([[&own_site, "/v1/jobs/batch"], [&own_site, "/v1/jobs"]]), &done);
    let listen = format!("127.0.0.2:{port}");
    let site = WebSite::start(&listen, page, Some(cluster.address()));
    let names = format!("MAP evil.example {}", site.address.ip());
    let Some(_browser) = Browser::open(&format!("{own_site}/"), &names) else { return };
    for (name, outcome) in attempts(&done, 2) {
        let may = match name.rsplit_once(' ').expect("a route and a name").1 {
            "text" | "parameters" | "fields" | "bytes" | "json" | "header" | "empty" | "read" | "look" => {
                // The browser shows its page the whole answer: the host is another one.
                outcome == "basic 421"
            }
            "image" => outcome == "blocked",
            _ => outcome == "sent",
        };
        assert!(may, "{name}: {outcome}");
    }
    check_nothing_happened(&cluster);
}
