//! `sailfish local`: a cluster on one machine, as separate processes, for trials and tests.

use super::{LocalArgs, until_told};
use crate::engine::machine;
use crate::exit::Failure;
use crate::show::terminal::{print, tell};
use anyhow::{Context, anyhow};
use api::job::resources::GenericResources;
use jobspec::{memory_size, state_dir};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

/// Starts a server and its nodes, prints the URL, and ends them all when told to. They end with this process in any
/// case: each reads a pipe that it holds.
pub fn run(args: &LocalArgs, objects_config: Option<&Path>) -> Result<(), Failure> {
    let dir = match &args.dir {
        Some(dir) => std::path::absolute(dir).with_context(|| format!("--dir {}", dir.display())),
        None => state_dir::state_dir(None).map(|dir| dir.join("cluster")),
    };
    let dir = dir.map_err(Failure::refused)?;
    let memory_bytes = match &args.memory {
        Some(text) => memory_size::parse(text)
            .with_context(|| format!("--memory {text:?}"))
            .map_err(Failure::refused)?,
        None => {
            let each = machine::default_memory_bytes() / u64::from(args.nodes);
            each.max(mapreduce::layout::MEMORY_BYTES_MIN)
        }
    };
    // A node would end with the same mistake, after the server has started.
    GenericResources::parse(args.resource.iter().map(String::as_str))
        .context("--resource")
        .map_err(Failure::refused)?;
    let binary = std::env::current_exe().context("finding this program")?;
    let (stop, stopped) = mpsc::sync_channel(1);
    until_told(args.with_parent, move || {
        let _ = stop.send(());
    })?;
    let mut children = Vec::new();
    let spawn = |command: &mut Command| {
        if let Some(path) = objects_config {
            command.env(objects::SETTINGS_FILE_VARIABLE, path);
        }
        command.stdin(Stdio::piped()).arg("--with-parent").spawn()
    };
    let started = start(args, &binary, &dir, memory_bytes, &mut children, spawn);
    if let Ok(url) = &started {
        let (nodes, racks) = (args.nodes, args.racks.min(args.nodes));
        tell(&format!("sailfish: {nodes} nodes in {racks} racks work for {url}; Ctrl-C stops them"));
        print(&format!("{url}\n"))?;
        // The sender lives as long as the signal threads.
        let _ = stopped.recv();
    }
    // Nodes first, so that they can shut down gracefully.
    for child in children.iter_mut().rev() {
        drop(child.stdin.take());
        let _ = child.wait();
    }
    Ok(started.map(drop)?)
}

fn start(
    args: &LocalArgs,
    binary: &Path,
    dir: &Path,
    memory_bytes: u64,
    children: &mut Vec<Child>,
    spawn: impl Fn(&mut Command) -> std::io::Result<Child>,
) -> anyhow::Result<String> {
    let mut command = Command::new(binary);
    command.args(["server", "--listen", &args.listen, "--state"]).arg(dir.join("state"));
    command.args(args.no_tokens.then_some("--no-tokens"));
    let mut server = spawn(command.stdout(Stdio::piped())).context("starting the server")?;
    let answers = server.stdout.take();
    children.push(server);
    let mut url = String::new();
    let answers = answers.context("the server has no standard output")?;
    BufReader::new(answers).read_line(&mut url).context("reading the URL of the server")?;
    let url = url.trim().to_string();
    if url.is_empty() {
        return Err(anyhow!("the server did not start"));
    }
    for number in 0..args.nodes {
        let mut command = Command::new(binary);
        command.args(["node", "--server", &url, "--slots", &args.slots.to_string()]);
        command.args(["--memory", &memory_bytes.to_string(), "--name", &format!("node-{number}")]);
        command.args(["--shuffle-reserve", &args.shuffle_reserve.to_string()]);
        command.args(["--scrub-every", &args.scrub_every]);
        for resource in &args.resource {
            command.args(["--resource", resource]);
        }
        command.args(["--verify-after", &args.verify_after, "--cache", &args.cache]);
        command.args(["--rack", &format!("rack-{}", number % args.racks), "--disk"]);
        command.arg(dir.join(format!("node-{number}")));
        children.push(spawn(command.stdout(Stdio::null())).context("starting a node")?);
    }
    Ok(url)
}
