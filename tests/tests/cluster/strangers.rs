//! Requests that no client of ours sends: by a web page in the user's browser, by whoever opens connections and says nothing, by way
//! of a proxy that the environment names.

use blackbox::{Cluster, exchange, wait_until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// A job that leaves a mark: a web page that gets it in has run a program as the user.
fn batch(cluster: &Cluster) -> (std::path::PathBuf, Vec<u8>) {
    let mark = cluster.sandbox.path("mark");
    let task = json!({"words": ["touch", mark.to_str().expect("text")], "directory": "/", "env": []});
    let batch = json!({"name": "page", "tasks": [task], "user": "page", "priority": 0});
    (mark, batch.to_string().into_bytes())
}

fn jobs(cluster: &Cluster) -> Value {
    let answer = exchange(cluster.address(), "GET /v1/jobs", b"").expect("a server answers");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json().expect("a list")["jobs"].clone()
}

#[test]
fn web_page_of_another_origin_changes_nothing() {
    let cluster = Cluster::builder().nodes(1).start();
    let (mark, body) = batch(&cluster);
    let own = cluster.address();
    let post = "POST /v1/jobs/batch\ncontent-type:";
    let pages = [
        // `fetch` with `no-cors`, a form, a beacon: media types for which browsers do not ask first.
        (format!("{post} text/plain;charset=UTF-8"), 415),
        (format!("{post} application/x-www-form-urlencoded"), 415),
        (format!("{post} multipart/form-data; boundary=x"), 415),
        // What comes after asking first, from a browser that lets it through all the same.
        (format!("{post} application/json\norigin: http://evil.example"), 403),
        (format!("{post} application/json\norigin: null"), 403),
        (format!("{post} application/json\norigin: http://127.0.0.1:1"), 403),
        (format!("{post} application/json\nsec-fetch-site: cross-site"), 403),
        (format!("{post} application/json\nsec-fetch-site: same-site"), 403),
        // A name of somebody else's DNS that leads here: a page of the same origin, as the browser sees it.
        (format!("{post} application/json\nhost: evil.example:7070"), 400),
        ("OPTIONS /v1/jobs/batch\ncontent-type: text/plain\norigin: http://evil.example".to_string(), 403),
        ("GET /v1/jobs\nsec-fetch-site: cross-site\nsec-fetch-mode: no-cors".to_string(), 403),
        ("POST /v1/gc\ncontent-type: text/plain".to_string(), 415),
    ];
    for (head, status) in &pages {
        let answer = exchange(own, head, &body).expect("a server answers");
        assert_eq!(answer.status, *status, "{head}: {}", answer.text());
        assert!(answer.json().is_some_and(|answer| answer["message"].is_string()), "{}", answer.text());
        assert!(!answer.headers.contains("access-control-allow"), "{}", answer.headers);
    }
    let renamed = "GET /v1/jobs HTTP/1.1\r\nhost: evil.example:7070\r\nconnection: close\r\n\r\n";
    assert!(raw(own, renamed).starts_with("HTTP/1.1 421"), "{}", raw(own, renamed));
    assert_eq!(jobs(&cluster), json!([]));
    assert!(!mark.exists());
    cluster.server().wait_for_stderr("a request was refused");
    // The data port of a node, by the same rule.
    let nodes = exchange(own, "GET /v1/nodes", b"").expect("a server answers").json().expect("nodes");
    let data_port = nodes["nodes"][0]["info"]["data_url"].as_str().expect("a URL");
    let data_port = data_port.trim_start_matches("http://");
    for (head, status) in [
        ("POST /data/v1/jobs/1/frames\ncontent-type: text/plain", 415),
        ("POST /data/v1/jobs/1/frames\nsailfish-incarnation: 1\norigin: http://evil.example", 403),
    ] {
        let answer = exchange(data_port, head, b"x").expect("a node answers");
        assert_eq!(answer.status, status, "{head}: {}", answer.text());
    }
    // The same job by a program that says of what kind its message is.
    let answer = exchange(own, "POST /v1/jobs/batch\ncontent-type: application/json", &body);
    assert_eq!(answer.expect("a server answers").status, 200);
    let job = jobs(&cluster)[0]["job"].to_string();
    cluster.run(&["wait", &job]).expect_success();
    assert!(mark.exists());
}

/// Sends a text and reads to the end of the answer.
fn raw(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a server listens");
    stream.write_all(text.as_bytes()).expect("it reads");
    let mut answer = String::new();
    // Cut off is an answer too.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn operator_adds_names_of_the_server() {
    let cluster = Cluster::builder()
        .nodes(1)
        .server_command(|command| {
            command.args(["--host-name", "DB1.example"]);
        })
        .start();
    let status = |host: &str| {
        let own = format!("host: {host}\r\n{}\r\n", cluster.own_token_header());
        let request = format!("GET /v1/jobs HTTP/1.1\r\n{own}connection: close\r\n\r\n");
        raw(cluster.address(), &request).split(' ').nth(1).map(str::to_string)
    };
    for host in ["db1.example", "db1.example:9000", "localhost:9000", "127.0.0.1"] {
        // As through a tunnel from another port.
        assert_eq!(status(host).as_deref(), Some("200"), "{host}");
    }
    assert_eq!(status("db2.example").as_deref(), Some("421"));
}

/// With 128 descriptors a server has 64 connections, 32 of them from one address, and 16 more in reserve.
#[test]
fn silent_connections_up_to_limit_leave_health_reachable() {
    let cluster = Cluster::builder()
        .server_command(|command| {
            let server = std::mem::replace(command, Command::new("sh"));
            command
                .args(["-c", "ulimit -n 128; exec \"$@\"", "sh"])
                .arg(server.get_program())
                .args(server.get_args());
            command.current_dir(server.get_current_dir().expect("a directory of the test"));
            for (name, value) in server.get_envs() {
                value.map(|value| command.env(name, value));
            }
        })
        .start();
    let address = cluster.address();
    let silent = || TcpStream::connect(address).expect("a server listens");
    let slow = || {
        let mut slow = silent();
        slow.write_all(b"GET /v1/jobs HTTP/1.1\r\nhost: loc").expect("it reads");
        slow
    };
    // More than the bound: in the reserve as well.
    let held: Vec<TcpStream> =
        (0..60).map(|number| if number % 2 == 0 { silent() } else { slow() }).collect();
    cluster.server().wait_for_stderr("too many connections");
    for _ in 0..20 {
        let health = exchange(address, "GET /healthz", b"").expect("health is answered");
        assert_eq!((health.status, health.text().as_str()), (200, "ok\n"));
    }
    let full = exchange(address, "GET /v1/jobs", b"").expect("a server answers");
    assert_eq!((full.status, full.json().expect("JSON")["code"].as_str()), (503, Some("too_many")));
    drop(held);
    wait_until("connections that ended count no more", || {
        exchange(address, "GET /v1/jobs", b"").expect("a server answers").status == 200
    });
}

#[test]
fn proxies_of_the_environment_are_not_asked() {
    // Nothing listens there.
    let proxies = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let proxies = proxies.map(|name| (name.to_string(), "http://127.0.0.1:9".to_string()));
    let cluster = Cluster::builder().nodes(2).environment(proxies.to_vec()).start();
    cluster.sandbox.write("in/text", "one line\n".repeat(1000));
    let job = ["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum", "--output", "out"];
    cluster.run_job(&job).expect_success();
}
