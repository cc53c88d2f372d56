//! `sailfish server`, `sailfish node`, `sailfish local`: the processes of a cluster.

use crate::engine::file_views::MountedViews;
use crate::engine::machine;
use crate::engine::step_outputs::OutputsOfSteps;
use crate::exit::{FAILED, Failure};
use crate::options::connect;
use crate::show::terminal::{print, tell};
use anyhow::{Context, anyhow, ensure};
use api::control::{ErrorCode, NodeInfo, PROTOCOL_VERSION};
use api::job::resources::GenericResources;
use api::seen::{SEES_MAX, is_seen_path};
use api::shipping::SHIPPED_FILE_BYTES_MAX;
use client::Blocking;
use data_port::DataPort;
use jobspec::{duration, memory_size, paths, state_dir};
use metastore::Metastore;
use node::{
    Disks, Drill, DyingProcess, LeftOnDisks, Node, NodeLink, NodeOptions, RANGE_CACHE_BYTES_MAX, Remote,
    StoredSettings,
};
use program::{Containment, Network, Programs, Sandbox};
use roots::{JobPaths, Roots, deepest_existing};
use server::{Server, ServerOptions};
use shipped::{Depot, Limits};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeSet;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use trust::Credentials;

mod args;
pub mod console;
mod data_port;
mod database;
mod entrance;
mod local;
mod supervise;

pub use args::{LocalArgs, NodeArgs, ServerArgs};
pub use local::run as run_local;

/// Variable with the directory of the user's state, if it is not the usual one.
const STATE_HOME: &str = "XDG_STATE_HOME";
/// Directory of the file cache on the first disk of a node.
const CACHE_DIR: &str = ".sailfish-shipped";
const CACHE_BYTES_MAX: u64 = 4 << 30;
/// Time until the server notices that the previous process is dead: its lease plus a margin.
const JOIN_MAX: Duration = Duration::from_secs(15);
const JOIN_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Waits for Ctrl-C, a request to terminate, or with `with_parent` the end of standard input.
fn until_told(with_parent: bool, act: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("listening for signals")?;
    let act = Arc::new(Mutex::new(Some(act)));
    let once = move || {
        let act = act.lock().unwrap_or_else(PoisonError::into_inner).take();
        act.into_iter().for_each(|act| act());
    };
    let thread = |name: &str| std::thread::Builder::new().name(name.to_string());
    if with_parent {
        let once = once.clone();
        let ends = move || {
            // The content does not matter; an error counts as the end.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            once();
        };
        thread("parent").spawn(ends).context("starting a thread")?;
    }
    let told = move || signals.forever().take(1).for_each(|_| once());
    thread("signals").spawn(told).context("starting a thread")?;
    Ok(())
}

/// Serves until told to stop.
pub fn run_server(args: &ServerArgs) -> Result<(), Failure> {
    machine::raise_open_file_limit();
    let listen: SocketAddr = args
        .listen
        .parse()
        .with_context(|| {
            format!("--listen {}: give an address and a port, as in 127.0.0.1:7070", args.listen)
        })
        .map_err(Failure::refused)?;
    entrance::check(args, listen).map_err(Failure::refused)?;
    let state_dir = state_dir::state_dir(args.state.as_deref()).map_err(Failure::refused)?;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let leads = Arc::new(AtomicBool::new(false));
    let told_leads = Arc::clone(&leads);
    until_told(args.with_parent, move || {
        if !told_leads.load(Ordering::Relaxed) {
            // A standby has no work to end.
            std::process::exit(0);
        }
        let _ = stop.send(());
    })?;
    let database = database::url(args).map_err(Failure::refused)?;
    let mut options = ServerOptions::cluster(state_dir.clone(), database.clone());
    options.shipped = entrance::shipped_options(args).map_err(Failure::refused)?;
    options.roots = entrance::roots(args, &state_dir).map_err(Failure::refused)?;
    let server = Server::open(options).map_err(Failure::from_server)?;
    leads.store(true, Ordering::Relaxed);
    let server = Arc::new(server);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .enable_all()
        .build()
        .context("starting the threads of the control port")?;
    let serving: anyhow::Result<()> = runtime.block_on(async {
        let open = async || match &database {
            None => Metastore::open(&state_dir).await,
            Some(url) => Metastore::connect(url).await,
        };
        let (store, files) = (open().await?, open().await?);
        let listener =
            tokio::net::TcpListener::bind(listen).await.with_context(|| format!("--listen {listen}"))?;
        let address = listener.local_addr().context("finding the address")?;
        let (access, tls) = entrance::open(args, &state_dir, address)?;
        let state = store.path().display().to_string();
        let port = controlport::Port::open(Arc::clone(&server), store, files, access).await?;
        if args.require_tokens {
            entrance::give_admin_token(&port, &state_dir).await?;
        } else if !args.no_tokens {
            entrance::keep_own_token(&port, address).await?;
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        tell(&format!("sailfish: serving at {scheme}://{address}, state in {state}"));
        print(&format!("{scheme}://{address}\n"))?;
        let tasks = [tokio::spawn(port.clone().tell_refusals()), tokio::spawn(port.clone().keep_files())];
        let door = entrance::door(args, tls);
        let ended = tokio::select! {
            never = listener::serve(listener, door, controlport::router(port)) => match never {},
            _ = stopped => Ok(()),
            _ = server.stopped() => {
                Err(anyhow!("the server failed: {}", server.failure().unwrap_or_default()))
            }
        };
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        ended
    });
    server.shutdown();
    runtime.shutdown_background();
    Ok(serving?)
}

/// Runs tasks until told to stop. A node that the server has removed joins again as a new one.
pub fn run_node(args: &NodeArgs) -> Result<(), Failure> {
    if args.supervise {
        return supervise::run(args);
    }
    machine::raise_open_file_limit();
    let programs = contained_programs(args)?;
    let mut info = node_info(args).map_err(Failure::refused)?;
    let credentials = args.credentials.read(&args.server)?;
    let data_port = DataPort::open(args, &credentials).map_err(Failure::refused)?;
    info.data_url = data_port.url.clone();
    let disks = disk_dirs(args).map_err(Failure::refused)?;
    let caches = file_caches(args, &disks).map_err(Failure::refused)?;
    let roots = own_roots(args).map_err(Failure::refused)?;
    let limits = jobspec::limits::parse(&args.limit).map_err(Failure::refused)?;
    let stored = stored_settings(args).map_err(Failure::refused)?;
    let seen = seen_directories(args, &disks).map_err(Failure::refused)?;
    info.sees.clone_from(&seen.dirs);
    let start_dir = std::env::current_dir().context("finding the current directory")?;
    let (current, stopping) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let views = end_when_told(args, &current, &stopping, &programs)?;
    let mut again = args.again;
    while !stopping.load(Ordering::Relaxed) {
        let dying = if again { DyingProcess::Await } else { DyingProcess::Ignore };
        let left = LeftOnDisks::find(&disks, dying);
        (info.left, info.predecessors) = (left.told(), left.proofs());
        let link = join(args, &credentials, &info, again)?;
        again = true;
        let (node, incarnation) = (link.node(), link.incarnation().to_string());
        let sandbox = sandbox(args, link.must_sandbox()).map_err(Failure::refused)?;
        let disks = Disks::open(&disks, &incarnation, link.disk_proof())
            .context("--disk")
            .map_err(Failure::refused)?;
        left.give_to(&disks, link.readmitted());
        programs.set_temporary(disks.program_files());
        let (data, drill) = (data_port.client.clone(), drill(args, &programs));
        let remote = Remote::new(link, disks, data, caches.clone(), roots.clone(), drill, stored);
        let remote = Arc::new(remote.seeing(seen.paths.clone()));
        remote.tell_kept();
        remote.keep_files().context("starting a thread")?;
        remote.wait_for_stored_files();
        tell(&format!("sailfish: {} joined {} as {node}", info.name, args.server));
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&remote));
        let options = NodeOptions {
            slots: info.slots,
            places: 0,
            start_dir: start_dir.clone(),
            programs: Arc::clone(&programs),
            sandbox,
            limits,
            program_port: Some(data_port.program_port(remote.link())),
            program_env: program_env(args, &info),
            stored_files: None,
            step_files: Some(Arc::new(OutputsOfSteps::in_cluster())),
            views: Some(Arc::<MountedViews>::clone(&views)),
            seen: seen.paths.clone(),
            file_memory_bytes: info.memory_bytes,
        };
        work(&remote, options, &data_port, &views)?;
        current.lock().unwrap_or_else(PoisonError::into_inner).take();
        remote.end();
        if remote.has_left() {
            tell(&format!("sailfish: {} was drained and has left", info.name));
            return Ok(());
        }
        if !stopping.load(Ordering::Relaxed) {
            tell(&format!("sailfish: the server at {} removed {node}; joining again", args.server));
        }
    }
    await_end()
}

/// Waits for the thread with the signal: it shuts down gracefully first, and then ends the process.
fn await_end() -> ! {
    loop {
        std::thread::park();
    }
}

/// Ends the node in order when a signal arrives or its parent ends. Returns the views of stored files, which end as well.
fn end_when_told(
    args: &NodeArgs,
    current: &Arc<Mutex<Option<Arc<Remote>>>>,
    stopping: &Arc<AtomicBool>,
    programs: &Arc<Programs>,
) -> Result<Arc<MountedViews>, Failure> {
    let views = Arc::new(MountedViews::new(Arc::clone(programs)));
    let (told, told_of, ended) = (Arc::clone(stopping), Arc::clone(current), Arc::clone(&views));
    until_told(args.with_parent, move || {
        told.store(true, Ordering::Relaxed);
        end_node(&told_of, &ended)
    })?;
    Ok(views)
}

/// Leaves the server, unmounts, ends all programs, and then this process.
fn end_node(current: &Mutex<Option<Arc<Remote>>>, views: &MountedViews) -> ! {
    let remote = current.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(remote) = remote {
        remote.tell_leaving();
        // If the server is unavailable, it learns this from the silence.
        let _ = remote.link().leave();
        views.end();
        remote.end();
    }
    views.programs().end_all();
    std::process::exit(0)
}

/// Returns the registry of this node's programs, contained as well as the machine allows. Its spawner starts now, while
/// this process is small.
fn contained_programs(args: &NodeArgs) -> Result<Arc<Programs>, Failure> {
    let wanted = if args.no_contain { Containment::Subreaper } else { Containment::Namespaces };
    let programs = Programs::contained(wanted);
    programs.prepare().map_err(anyhow::Error::from)?;
    if let Err(error) = programs.contain_as_allowed() {
        tell(&format!(
            "sailfish: programs see the processes and the /tmp of this machine, because namespaces are refused ({error}); \
             their descendants end with their attempt all the same"
        ));
    }
    Ok(Arc::new(programs))
}

/// Runs tasks and serves data, until the node leaves or is removed.
fn work(
    remote: &Arc<Remote>,
    options: NodeOptions,
    data_port: &DataPort,
    views: &MountedViews,
) -> Result<(), Failure> {
    let mut running = Node::start(Arc::clone(remote) as _, options).map_err(anyhow::Error::from)?;
    running.share_record_data(Arc::clone(remote) as _);
    running.follow_orders(Arc::clone(remote)).map_err(anyhow::Error::from)?;
    running.report_to(Arc::clone(remote) as _).map_err(anyhow::Error::from)?;
    let incarnation = node::data_incarnation(remote.link().node());
    let serving = data_port.serve(running.chunkservers(incarnation, remote.access()))?;
    running.join();
    views.end();
    serving.abort();
    Ok(())
}

/// Joins the server. A restarted node may join before the server notices the end of its predecessor; and a long outage
/// of the server is no reason to give up.
fn join(
    args: &NodeArgs,
    credentials: &Credentials,
    info: &NodeInfo,
    again: bool,
) -> Result<NodeLink, Failure> {
    let started = Instant::now();
    loop {
        let connection = Blocking::with(&args.server, credentials).map_err(Failure::from_client)?;
        match NodeLink::join(connection, info) {
            Ok(link) => return Ok(link),
            Err(error)
                if again && error.code() == Some(ErrorCode::Refused) && started.elapsed() < JOIN_MAX =>
            {
                std::thread::sleep(JOIN_AGAIN_AFTER);
            }
            Err(error) if again && error.is_silence() => {
                return Err(Failure { code: FAILED, ..Failure::from_client(error) });
            }
            Err(error) => return Err(Failure::from_client(error)),
        }
    }
}

fn drill(args: &NodeArgs, programs: &Arc<Programs>) -> Drill {
    if args.drills { Drill::taking_part(programs) } else { Drill::none() }
}

/// Returns the settings for stored files.
fn stored_settings(args: &NodeArgs) -> anyhow::Result<StoredSettings> {
    let scrub_every = duration::parse(&args.scrub_every);
    let scrub_every = scrub_every.with_context(|| format!("--scrub-every {:?}", args.scrub_every))?;
    let verify_after = match args.verify_after.as_str() {
        "0" => Ok(Duration::ZERO),
        text => duration::parse(text),
    };
    let verify_after = verify_after.with_context(|| format!("--verify-after {:?}", args.verify_after))?;
    let unused_copy_bytes_max = shipped_bytes_max(args)?;
    let cache_bytes_max =
        memory_size::parse(&args.cache).with_context(|| format!("--cache {:?}", args.cache))?;
    ensure!(
        cache_bytes_max <= RANGE_CACHE_BYTES_MAX,
        "--cache {:?}: give at most {}G",
        args.cache,
        RANGE_CACHE_BYTES_MAX >> 30
    );
    Ok(StoredSettings {
        reserve_percent: args.shuffle_reserve,
        scrub_every,
        verify_after,
        unused_copy_bytes_max,
        cache_bytes_max,
    })
}

/// Returns the directories for intermediate data of this node, each once.
fn disk_dirs(args: &NodeArgs) -> anyhow::Result<Vec<PathBuf>> {
    if args.disk.is_empty() {
        return Ok(vec![state_dir::state_dir(None)?.join("disk")]);
    }
    for disk in &args.disk {
        paths::check_disk(&std::path::absolute(disk)?, &disk.display().to_string())?;
    }
    // A directory that is given twice counts once.
    let mut seen = BTreeSet::new();
    Ok(args.disk.iter().filter(|disk| seen.insert(*disk)).cloned().collect())
}

/// Returns the environment of programs, for access to the server and the name of their node.
fn program_env(args: &NodeArgs, info: &NodeInfo) -> Vec<(String, String)> {
    let mut env = vec![
        (connect::SERVER_VARIABLE.to_string(), args.server.clone()),
        (connect::NODE_VARIABLE.to_string(), info.name.clone()),
    ];
    env.extend(path_with_this_program().map(|path| ("PATH".to_string(), path)));
    // The directory has servers' own tokens.
    env.extend(std::env::var(STATE_HOME).map(|dir| (STATE_HOME.to_string(), dir)));
    env
}

/// Returns the PATH for programs, on which they find `sailfish` last; None if they find it anyway.
fn path_with_this_program() -> Option<String> {
    let this = std::env::current_exe().ok().filter(|this| this.file_name() == Some("sailfish".as_ref()))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if dirs.iter().any(|dir| dir.join("sailfish").is_file()) {
        return None;
    }
    dirs.push(this.parent()?.to_path_buf());
    std::env::join_paths(dirs).ok()?.into_string().ok()
}

/// Returns the roots below which this node lets jobs name paths; None if only those of the server apply.
fn own_roots(args: &NodeArgs) -> anyhow::Result<Option<Roots>> {
    let given = Some(&args.allow_root).filter(|roots| !roots.is_empty());
    given.map(|roots| Roots::of_operator(roots)).transpose().context("--allow-root")
}

/// Directories that this node sees and not every other, and the access to them.
struct SeenHere {
    dirs: Vec<PathBuf>,
    paths: Option<JobPaths>,
}

/// Opens the directories of `--sees`. None may contain a disk or the state of this node, or lie in one.
fn seen_directories(args: &NodeArgs, disks: &[PathBuf]) -> anyhow::Result<SeenHere> {
    let mut own = vec![state_dir::state_dir(None)?];
    own.extend(disks.iter().cloned());
    let mut dirs = Vec::new();
    for given in &args.sees {
        let shown = given.display();
        let dir = given.canonicalize().with_context(|| format!("--sees {shown}"))?;
        std::fs::read_dir(&dir).with_context(|| format!("--sees {shown}"))?;
        ensure!(is_seen_path(&dir), "--sees {shown}: give a directory below /, with a name in UTF-8");
        for place in &own {
            let place = std::path::absolute(place)?;
            let (found, missing) = deepest_existing(&place).with_context(|| place.display().to_string())?;
            let place = missing.iter().fold(found, |place, name| place.join(name));
            ensure!(
                !dir.starts_with(&place) && !place.starts_with(&dir),
                "--sees {shown}: it overlaps {}, where this node keeps data: give another directory",
                place.display()
            );
        }
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    ensure!(dirs.len() <= SEES_MAX, "--sees is given {} times: at most {SEES_MAX}", dirs.len());
    let texts: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let roots = Some(Roots::of_operator(&texts).context("--sees")?).filter(|_| !dirs.is_empty());
    Ok(SeenHere { dirs, paths: roots.map(|roots| JobPaths::below(vec![roots])) })
}

/// Opens the caches of files on all disks. Those on other disks are used when the first disk fails.
fn file_caches(args: &NodeArgs, disks: &[PathBuf]) -> anyhow::Result<Vec<Arc<Depot>>> {
    disks.iter().map(|disk| file_cache(args, disk)).collect()
}

fn shipped_bytes_max(args: &NodeArgs) -> anyhow::Result<u64> {
    let text = args.shipped_max.as_deref();
    let bytes_max = text.map(memory_size::parse).transpose().context("--shipped-max")?;
    Ok(bytes_max.unwrap_or(CACHE_BYTES_MAX))
}

/// Opens the cache of files that this node, or an earlier one on the same disk, has fetched.
fn file_cache(args: &NodeArgs, disk: &Path) -> anyhow::Result<Arc<Depot>> {
    let total_bytes_max = shipped_bytes_max(args)?;
    let limits = Limits {
        file_bytes_max: SHIPPED_FILE_BYTES_MAX,
        owner_bytes_max: total_bytes_max,
        total_bytes_max,
        counted_bytes_min: 64 << 10,
        // A file that a job needs is copied at once.
        spare: Duration::ZERO,
    };
    Depot::open(&disk.join(CACHE_DIR), limits).context("--disk")
}

/// Returns the sandbox of user programs on this node; None if neither the node nor the server asks for one.
fn sandbox(args: &NodeArgs, server_wants: bool) -> anyhow::Result<Option<Sandbox>> {
    let checked = Sandbox::check_kernel();
    if !args.sandbox && !server_wants {
        if let Err(error) = checked {
            tell(&format!("sailfish: programs run with the rights of this node: {error}"));
        }
        return Ok(None);
    }
    let asked = match args.sandbox {
        true => "--sandbox",
        false => "the server requires a sandbox (server --sandbox or --require-tokens without --no-sandbox)",
    };
    checked.context(asked)?;
    let memory = args.sandbox_memory.as_deref().map(memory_size::parse).transpose();
    let memory_bytes = memory.context("--sandbox-memory")?;
    let allowed = if args.allow_network { Network::Allowed } else { Network::None };
    Ok(Some(Sandbox::new(args.sandbox_read.clone(), memory_bytes, allowed)))
}

fn default_name() -> String {
    let host = rustix::system::uname();
    format!("{}-{}", host.nodename().to_string_lossy(), std::process::id())
}

fn node_info(args: &NodeArgs) -> anyhow::Result<NodeInfo> {
    let memory_bytes = match &args.memory {
        Some(text) => memory_size::parse(text).with_context(|| format!("--memory {text:?}"))?,
        None => machine::default_memory_bytes(),
    };
    machine::check_memory(memory_bytes)?;
    let slots = args.slots.unwrap_or_else(machine::default_slots);
    let slots_max = machine::SLOTS_MAX;
    ensure!((1..=slots_max).contains(&slots), "--slots {slots} is out of range: give 1 to {slots_max}");
    let name = match &args.name {
        Some(name) => name.clone(),
        None => default_name(),
    };
    ensure!(!name.is_empty() && name.len() <= args::NAME_BYTES_MAX, "--name {name:?}: give 1 to 100 bytes");
    let resources =
        GenericResources::parse(args.resource.iter().map(String::as_str)).context("--resource")?;
    Ok(NodeInfo {
        protocol: PROTOCOL_VERSION,
        version: env!("CARGO_PKG_VERSION").to_string(),
        name,
        rack: args.rack.clone(),
        slots,
        memory_bytes,
        architecture: std::env::consts::ARCH.to_string(),
        resources,
        data_url: String::new(),
        sees: Vec::new(),
        left: Vec::new(),
        predecessors: Vec::new(),
    })
}
