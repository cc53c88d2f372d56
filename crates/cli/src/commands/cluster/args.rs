//! Options of the processes of a cluster.

use crate::options::connect::CredentialArgs;
use clap::Args;
use std::path::PathBuf;

/// Longest name of a node, in bytes.
pub const NAME_BYTES_MAX: usize = api::control::NODE_NAME_BYTES_MAX;

#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Address and port to listen at; port 0 takes one that is free. The URL is printed on standard output
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    pub listen: String,
    /// Directory of the state [default: sailfish in the XDG state directory]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Keep the rows in this PostgreSQL database, postgres://USER@HOST:PORT/NAME. Of several servers on one database
    /// the first serves, the others wait until it dies and take over. ?sslmode=verify-full&sslrootcert=FILE is TLS
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// File with the password of the database [default: what PGPASSFILE or ~/.pgpass has]
    #[arg(long, value_name = "FILE", requires = "database")]
    pub database_password_file: Option<PathBuf>,
    /// Admit only tokens that were made by `sailfish token`. The first start writes one for the administrator into the state
    /// directory [default: also the server's own token, which programs of this user find]
    #[arg(long)]
    pub require_tokens: bool,
    /// Admit every program that reaches the port as an administrator; for loopback addresses only
    #[arg(long, conflicts_with = "require_tokens")]
    pub no_tokens: bool,
    /// Speak TLS. The first start makes an authority for the certificates of this cluster in the state directory
    #[arg(long)]
    pub tls: bool,
    /// Another name or address in its certificate, by which clients in other languages reach it; may be given several times.
    /// It is a --host-name as well
    #[arg(long, value_name = "HOST", requires = "tls")]
    pub tls_name: Vec<String>,
    /// Another name of this server, as in your DNS. A request to any other host than this machine, the listen address
    /// or these names is refused, because it may come from a web page
    #[arg(long, value_name = "HOST")]
    pub host_name: Vec<String>,
    /// Every node keeps user programs in a sandbox, as by `node --sandbox`; a node that cannot does not join
    #[arg(long)]
    pub sandbox: bool,
    /// Most jobs of a user that run or wait [default: 100000]
    #[arg(long, value_name = "N", requires = "require_tokens")]
    pub user_jobs_max: Option<u32>,
    /// Most bytes of words, variables and names of files of the jobs of a user that run or wait [default: 256M]
    #[arg(long, value_name = "SIZE", requires = "require_tokens")]
    pub user_arguments_max: Option<String>,
    /// Most bytes of kept I-files of a user; beyond them, new jobs of the user may not keep I-files [default: 1T]
    #[arg(long, value_name = "SIZE", requires = "require_tokens")]
    pub user_kept_max: Option<String>,
    /// Most bytes of the intermediate files of a user [default: 1T]
    #[arg(long, value_name = "SIZE", requires = "require_tokens")]
    pub user_intermediate_max: Option<String>,
    /// Most requests of a user, on average [default: 500]
    #[arg(long, value_name = "N", requires = "require_tokens",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub user_requests_per_second: Option<u32>,
    /// Most bytes that a user sends, on average [default: 16M]
    #[arg(long, value_name = "SIZE", requires = "require_tokens")]
    pub user_bytes_per_second: Option<String>,
    /// Directory, or prefix s3://BUCKET/PREFIX of objects, below which jobs may name inputs, outputs, files, programs and
    /// the directories in which they run, or USER=DIR for jobs of this user; may be given several times [default: anything, or
    /// nothing with --require-tokens]
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub allow_root: Vec<String>,
    /// Directory of the files that clients ship with their jobs [default: shipped in the state directory]
    #[arg(long, value_name = "DIR")]
    pub shipped_dir: Option<PathBuf>,
    /// Most bytes of these files; the oldest files that no job needs are removed [default: 16G]
    #[arg(long, value_name = "SIZE")]
    pub shipped_max: Option<String>,
    /// Most bytes of the files of one user [default: 4G]
    #[arg(long, value_name = "SIZE")]
    pub user_shipped_max: Option<String>,
    /// End when standard input ends
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    /// The server to work for, as in http://127.0.0.1:7070; with commas between, also the addresses of its standbys
    #[arg(long, value_name = "URL")]
    pub server: String,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Address and port at which other nodes reach its data; port 0 takes one that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// Rack of this node
    #[arg(long, value_name = "NAME", default_value = "rack-0")]
    pub rack: String,
    /// Tasks that run at once, 1 to 1024 [default: one per core]
    #[arg(long, value_name = "N")]
    pub slots: Option<u32>,
    /// Let user programs read only what their job names and the folders of the system, and write only in their work
    /// directory and in the directory that a job of one task names. Needs Linux 6.2
    #[arg(long)]
    pub sandbox: bool,
    /// With a sandbox: another file or directory that programs may read; may be given several times
    #[arg(long, value_name = "PATH")]
    pub sandbox_read: Vec<PathBuf>,
    /// With a sandbox: most memory that a process of a program may map [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub sandbox_memory: Option<String>,
    /// Directory, or prefix s3://BUCKET/PREFIX of objects, below which jobs may name paths on this node; may be given
    /// several times, also as USER=DIR. The roots of the server hold as well [default: those of the server alone]
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub allow_root: Vec<String>,
    /// Memory for the buffers of all jobs that run here at once [default: half of the machine or control group]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Directory for intermediate data; may be given several times [default: disk in the state directory]
    #[arg(long, value_name = "DIR")]
    pub disk: Vec<PathBuf>,
    /// Most bytes of the files of jobs that are kept on the first disk for jobs to come [default: 4G]
    #[arg(long, value_name = "SIZE")]
    pub shipped_max: Option<String>,
    /// Name that no other node has [default: the host's, with the number of the process]
    #[arg(long)]
    pub name: Option<String>,
    /// Start the node as a process of its own, and restart it when it crashes, but not when it is stopped, drained or
    /// refused
    #[arg(long)]
    pub supervise: bool,
    /// Take part in fault drills (`sailfish drill`): an administrator may end or pause this process, and damage data
    /// and kill programs of drill jobs
    #[arg(long)]
    pub drills: bool,
    /// Comes after one that crashed
    #[arg(long, hide = true)]
    pub again: bool,
    /// End when standard input ends
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

#[derive(Debug, Args)]
pub struct LocalArgs {
    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: u32,
    /// Racks among which the nodes are divided
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub racks: u32,
    /// Address and port of the server; port 0 takes one that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    pub listen: String,
    /// Directory for the server's state and the nodes' disks [default: cluster in the state directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Tasks that run at once on each node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub slots: u32,
    /// Memory of each node [default: the machine's, divided]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Admit each program of this machine, as by `server --no-tokens`
    #[arg(long)]
    pub no_tokens: bool,
    /// End when standard input ends
    #[arg(long, hide = true)]
    pub with_parent: bool,
}
