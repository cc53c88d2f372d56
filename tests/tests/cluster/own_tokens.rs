//! The token that a server without `--require-tokens` makes for programs of its user: who finds it, and to whom it is shown.

use blackbox::{Cluster, Questions, Running, Sandbox, could_not_run, exchange, exchange_without_token};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const REFUSED: i32 = 2;
/// Behind the options of `sailfish submit`.
const PROGRAM: [&str; 2] = ["--", "true"];
/// The user and group `nobody`.
const OTHER_USER: u32 = 65534;

/// The status of a request that shows nothing.
fn status_of_stranger(cluster: &Cluster, path: &str) -> (u16, String) {
    let head = format!("GET {path}");
    let answer = exchange_without_token(cluster.address(), &head, b"").expect("a server answers");
    (answer.status, answer.text())
}

#[test]
fn programs_of_owner_enter_and_others_get_instructions() {
    let cluster = Cluster::builder().nodes(1).start();
    Running::start(cluster.sailfish(&["submit", "--wait"]).args(PROGRAM)).wait().expect_success();
    let (status, text) = status_of_stranger(&cluster, "/v1/jobs");
    assert!(status == 401 && text.contains("--token-file") && text.contains("--no-tokens"), "{text}");
    // What watches a machine needs no token.
    for path in ["/healthz", "/metrics", "/openapi.json"] {
        assert_eq!(status_of_stranger(&cluster, path).0, 200, "{path}");
    }
    let file = cluster.sandbox.own_token_file(cluster.address()).expect("a file");
    let mode = |path: &Path| path.metadata().expect("our own file").permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().expect("a directory"))), (0o600, 0o700));
    let elsewhere = cluster.sandbox.path("other-home");
    let mut without = cluster.sailfish(&["jobs"]);
    without.env("XDG_STATE_HOME", &elsewhere);
    Running::start(&mut without).wait().expect_failure(REFUSED, &["--token-file", "--no-tokens"]);
}

#[test]
fn server_without_tokens_refuses_only_web_pages() {
    let cluster = Cluster::builder()
        .nodes(1)
        .server_command(|command| {
            command.arg("--no-tokens");
        })
        .start();
    assert_eq!(cluster.sandbox.own_token_file(cluster.address()), None);
    assert_eq!(status_of_stranger(&cluster, "/v1/jobs").0, 200);
    let page = exchange(cluster.address(), "GET /v1/jobs\norigin: http://evil.example", b"");
    assert_eq!(page.expect("a server answers").status, 403);
    Running::start(cluster.sailfish(&["submit", "--wait"]).args(PROGRAM)).wait().expect_success();
    let mut everywhere = cluster.sandbox.sailfish();
    everywhere.args(["server", "--no-tokens", "--listen", "0.0.0.0:0", "--state", "other"]);
    Running::start(&mut everywhere).wait().expect_failure(REFUSED, &["--require-tokens --tls"]);
}

#[test]
fn killed_server_keeps_its_token() {
    let mut cluster = Cluster::builder().nodes(1).start();
    let file = cluster.sandbox.own_token_file(cluster.address()).expect("a file");
    let read = || std::fs::read_to_string(&file).expect("our own file");
    let first = read();
    cluster.restart_server();
    assert_eq!(read(), first);
    cluster.kill_server();
    let mut other = cluster.sandbox.sailfish();
    other.args(["server", "--listen", cluster.address(), "--state", "other-state"]);
    let other = Running::start(&mut other);
    other.wait_for_stderr("serving at");
    assert_ne!(read(), first);
    // The node has a token of the server that is gone, and finds the one of today.
    cluster.node(0).wait_for_stderr("joining again");
    Running::start(cluster.sailfish(&["submit", "--wait"]).args(PROGRAM)).wait().expect_success();
    cluster.led_by(other);
}

/// A command as another user, with a home of its own. None, and said so, where the machine does not let us.
fn as_other_user(cluster: &Cluster, args: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        could_not_run("a second account", "only root starts programs of another user");
        return None;
    }
    let own = cluster.sailfish(args);
    // The binary may lie where only root looks.
    let binary: PathBuf = cluster.sandbox.path("other/sailfish");
    if !binary.exists() {
        cluster.sandbox.write("other/place", "");
        let copied = Command::new("cp").arg("--").arg(own.get_program()).arg(&binary).status();
        assert!(copied.is_ok_and(|status| status.success()), "our own directory takes the binary");
        std::os::unix::fs::chown(cluster.sandbox.path("other"), Some(OTHER_USER), Some(OTHER_USER))
            .expect("root gives files away");
        cluster.sandbox.set_mode("", 0o755);
    }
    let mut command = Command::new(binary);
    command.args(own.get_args()).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("HOME", cluster.sandbox.path("other")).current_dir(cluster.sandbox.path("other"));
    command.uid(OTHER_USER).gid(OTHER_USER);
    Some(command)
}

#[test]
fn second_account_enters_with_a_token_file() {
    let cluster = Cluster::builder().nodes(1).start();
    let Some(mut without) = as_other_user(&cluster, &["jobs"]) else { return };
    Running::start(&mut without).wait().expect_failure(REFUSED, &["--token-file", "--no-tokens"]);
    let token = cluster.sandbox.path("other/ann.token");
    let file = token.to_str().expect("a sandbox has a plain path");
    let create = ["token", "create", "--user", "ann", "--role", "user", "--output", file];
    cluster.run(&create).expect_success();
    std::os::unix::fs::chown(&token, Some(OTHER_USER), Some(OTHER_USER)).expect("root gives files away");
    let mut submit = as_other_user(&cluster, &["submit", "--token-file", file, "--wait"]).expect("as before");
    Running::start(submit.args(PROGRAM)).wait().expect_success();
    assert_eq!(cluster.jobs().of_user("ann").count(), 1);
    let list = as_other_user(&cluster, &["token", "ls", "--token-file", file]);
    Running::start(&mut list.expect("as before")).wait().expect_failure(REFUSED, &["role user"]);
}

/// A tunnel of ssh to an address, through a daemon of the test's own, as a user who has no shell. None, and said so, where there is
/// no ssh.
fn tunnel_to(sandbox: &Sandbox, target: &str) -> Option<(u16, [Running; 2])> {
    let daemon = ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(|path| Path::new(path).exists());
    let keys = |name: &str| {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(sandbox.path(name));
        command.status().is_ok_and(|status| status.success())
    };
    let Some(daemon) =
        daemon.filter(|_| rustix::process::geteuid().is_root() && keys("host") && keys("user"))
    else {
        could_not_run(
            "a tunnel of ssh",
            "there is no ssh with a daemon (package openssh-server), or no root",
        );
        return None;
    };
    let free = || {
        TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port()
    };
    let (ssh_port, port) = (free(), free());
    let root = sandbox.path("");
    let root = root.display();
    let settings = format!(
        "Port {ssh_port}\nListenAddress 127.0.0.1\nHostKey {root}/host\nAuthorizedKeysFile {root}/user.pub\n\
         StrictModes no\nUsePAM yes\nPidFile none\n"
    );
    let settings = sandbox.write("sshd_config", settings);
    sandbox.set_mode("", 0o755);
    std::os::unix::fs::chown(sandbox.path("host"), Some(OTHER_USER), Some(OTHER_USER))
        .expect("root gives files away");
    let mut serve = Command::new(daemon);
    serve.args(["-D", "-e", "-f"]).arg(settings).uid(OTHER_USER).gid(OTHER_USER);
    let serving = Running::start(&mut serve);
    serving.wait_for_stderr("Server listening");
    let mut forward = Command::new("ssh");
    forward.args(["-v", "-N", "-F", "none", "-p", &ssh_port.to_string(), "-i"]).arg(sandbox.path("user"));
    forward.args([
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "BatchMode=yes",
    ]);
    forward.args(["-L", &format!("{port}:{target}"), "nobody@127.0.0.1"]);
    let forwarding = Running::start(&mut forward);
    forwarding.wait_for_stderr("Entering interactive session");
    Some((port, [forwarding, serving]))
}

#[test]
fn tunnel_from_another_port_takes_token_file() {
    let cluster = Cluster::builder().nodes(1).start();
    let Some((port, _tunnel)) = tunnel_to(&cluster.sandbox, cluster.address()) else { return };
    let server = format!("http://localhost:{port}");
    let through = |more: &[&str]| {
        let mut command = cluster.sandbox.sailfish();
        Running::start(command.args(["jobs", "--server", &server]).args(more)).wait()
    };
    through(&[]).expect_failure(REFUSED, &["--token-file", "--no-tokens"]);
    let file = cluster.sandbox.own_token_file(cluster.address()).expect("a file");
    through(&["--token-file", file.to_str().expect("a sandbox has a plain path")]).expect_success();
}

/// A program that listens, takes one request, and prints it.
const LISTENER: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
print(connection.recv(65536).decode().replace('\\r\\n', '|'), flush=True)
connection.sendall(b'HTTP/1.1 404 Not Found\\r\\ncontent-length: 0\\r\\nconnection: close\\r\\n\\r\\n')
";

/// Returns the request of a client to a listener of this user, at an address for which the client has a server's token file.
fn sent_to_listener_of(user: u32) -> Option<String> {
    let cluster = Cluster::builder().start();
    let mut listener = Command::new("python3");
    listener.args(["-c", LISTENER]).stdout(Stdio::piped()).uid(user).gid(user);
    listener.env_clear().env("PATH", "/usr/bin:/bin:/usr/local/bin").current_dir("/");
    let Ok(mut listener) = listener.spawn() else {
        could_not_run("a port of another user", "no python3 of another user");
        return None;
    };
    let mut said = BufReader::new(listener.stdout.take().expect("a pipe")).lines();
    let mut next = || said.next().expect("the listener prints").expect("text");
    let address = format!("127.0.0.1:{}", next());
    let file = cluster.sandbox.own_token_file(cluster.address()).expect("a file");
    let name = file.file_name().expect("a name").to_string_lossy().replace(cluster.address(), &address);
    std::fs::copy(&file, file.with_file_name(name)).expect("our own directory");
    let mut client = cluster.sandbox.sailfish();
    let client = Running::start(client.args(["jobs", "--server", &format!("http://{address}")]));
    let request = next();
    client.wait();
    listener.wait().expect("the listener ends");
    Some(request)
}

#[test]
fn port_of_another_user_gets_no_token() {
    if !rustix::process::geteuid().is_root() {
        return could_not_run("a port of another user", "only root starts programs of another user");
    }
    let Some(to_other) = sent_to_listener_of(OTHER_USER) else { return };
    assert!(to_other.starts_with("GET /v1/jobs") && !to_other.contains("authorization"), "{to_other}");
    let to_own = sent_to_listener_of(0).expect("as before");
    assert!(to_own.contains("authorization: Bearer sailfish_"), "{to_own}");
}
