//! Options of the processes of a cluster.

use crate::options::connect::CredentialArgs;
use clap::Args;
use std::path::PathBuf;

/// Longest name of a node, in bytes.
pub const NAME_BYTES_MAX: usize = api::control::NODE_NAME_BYTES_MAX;

#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Address and port to listen on; port 0 picks a free one. The URL is printed on standard output
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    pub listen: String,
    /// Directory of the state [default: sailfish in the XDG state directory]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Keep the state in this PostgreSQL database, postgres://USER@HOST:PORT/NAME. If several servers share a database,
    /// one serves and the others are standbys, which take over when it dies. ?sslmode=verify-full&sslrootcert=FILE
    /// enables TLS
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,
    /// File with the password of the database [default: from PGPASSFILE or ~/.pgpass]
    #[arg(long, value_name = "FILE", requires = "database")]
    pub database_password_file: Option<PathBuf>,
    /// Admit only tokens created by `sailfish token`. The first start writes one for the administrator into the state
    /// directory [default: also admit the server's own token, which programs of this user find]
    #[arg(long)]
    pub require_tokens: bool,
    /// Admit every program that reaches the port as an administrator; for loopback addresses only
    #[arg(long, conflicts_with = "require_tokens")]
    pub no_tokens: bool,
    /// Use TLS. The first start creates the certificate authority of this cluster in the state directory
    #[arg(long)]
    pub tls: bool,
    /// Additional name or address in the certificate, for clients in other languages; may be given several times. It
    /// also counts as a --host-name
    #[arg(long, value_name = "HOST", requires = "tls")]
    pub tls_name: Vec<String>,
    /// Additional name of this server, as in your DNS. Requests to any host but this machine, the listen address and
    /// these names are refused, because they may come from a web page
    #[arg(long, value_name = "HOST")]
    pub host_name: Vec<String>,
    /// Require every node to run user programs in a sandbox, as by `node --sandbox`; nodes without one cannot join. On
    /// with --require-tokens
    #[arg(long)]
    pub sandbox: bool,
    /// With --require-tokens: leave the sandbox to each node (`node --sandbox`). Programs of users then run with the
    /// rights of the node
    #[arg(long, conflicts_with = "sandbox")]
    pub no_sandbox: bool,
    /// Show users only their own jobs and intermediate files, and stored files that they own or may read by a group.
    /// Questions in SQL are for administrators
    #[arg(long, requires = "require_tokens")]
    pub private: bool,
    /// Maximum number of running and waiting jobs of a user [default: 100000]
    #[arg(long, value_name = "N", requires = "require_tokens")]
    pub user_jobs_max: Option<u32>,
    /// Maximum bytes of words, variables and file names of a user's running and waiting jobs [default: 256M]
    #[arg(long, value_name = "SIZE", requires = "require_tokens")]
    pub user_arguments_max: Option<String>,
    /// Maximum bytes of kept I-files of a user; beyond this, the user's new jobs may not keep I-files [default: 1T]
    #[arg(long, value_name = "SIZE", requires = "require_tokens")]
    pub user_kept_max: Option<String>,
    /// Maximum bytes of intermediate files of a user [default: 1T]
    #[arg(long, value_name = "SIZE", requires = "require_tokens")]
    pub user_intermediate_max: Option<String>,
    /// Maximum bytes of stored files of a user, without replicas [default: 1T]
    #[arg(long, value_name = "SIZE", requires = "require_tokens")]
    pub user_stored_max: Option<String>,
    /// Maximum requests per second of a user, on average [default: 500]
    #[arg(long, value_name = "N", requires = "require_tokens",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub user_requests_per_second: Option<u32>,
    /// Maximum bytes per second that a user sends, on average [default: 16M]
    #[arg(long, value_name = "SIZE", requires = "require_tokens")]
    pub user_bytes_per_second: Option<String>,
    /// Directory, or prefix s3://BUCKET/PREFIX of objects, below which jobs may name inputs, outputs, files, programs
    /// and the directories in which they run; USER=DIR applies to jobs of this user; may be given several times
    /// [default: anything, or nothing with --require-tokens]
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub allow_root: Vec<String>,
    /// Directory for the files that clients ship with their jobs [default: shipped in the state directory]
    #[arg(long, value_name = "DIR")]
    pub shipped_dir: Option<PathBuf>,
    /// Maximum bytes of shipped files; the oldest that no job needs are removed [default: 16G]
    #[arg(long, value_name = "SIZE")]
    pub shipped_max: Option<String>,
    /// Maximum bytes of shipped files of a user [default: 4G]
    #[arg(long, value_name = "SIZE")]
    pub user_shipped_max: Option<String>,
    /// Copy the stored files of a node that is silent for this long to other nodes; those with one replica left are
    /// copied at once, unless the node said that it leaves
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub repair_after: String,
    /// Silence after which a node counts as vanished
    #[arg(long, value_name = "DURATION", default_value = "15s", hide = true)]
    pub repair_grace: String,
    /// End when standard input ends
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Server to join, as in http://127.0.0.1:7070; addresses of its standbys follow, separated by commas
    #[arg(long, value_name = "URL")]
    pub server: String,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Address and port at which other nodes reach this node's data; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// Rack of this node
    #[arg(long, value_name = "NAME", default_value = "rack-0")]
    pub rack: String,
    /// Tasks that run at once, 1 to 1024 [default: one per core]
    #[arg(long, value_name = "N")]
    pub slots: Option<u32>,
    /// Run user programs in the machine's namespaces: they see its processes and its /tmp. Their descendants end with
    /// their attempt in any case
    #[arg(long)]
    pub no_contain: bool,
    /// Limit of the user programs of each attempt: processes=N, open-files=N, file-size=SIZE, disk=SIZE, memory=SIZE or
    /// time=DURATION; may be given several times. A job may set lower ones (run and submit --limit)
    #[arg(long, value_name = "NAME=VALUE")]
    pub limit: Vec<String>,
    /// Restrict user programs: they read only paths that their job names and system folders, and write only to their
    /// work directory and the directory that a one-task job names. Needs Linux 6.2. A server may require it
    #[arg(long)]
    pub sandbox: bool,
    /// With a sandbox: programs reach the network if their job asks for it (run and submit --network)
    #[arg(long)]
    pub allow_network: bool,
    /// With a sandbox: additional file or directory that programs may read; may be given several times
    #[arg(long, value_name = "PATH")]
    pub sandbox_read: Vec<PathBuf>,
    /// With a sandbox: maximum memory that each process of a program may map [default: no limit]
    #[arg(long, value_name = "SIZE")]
    pub sandbox_memory: Option<String>,
    /// Directory, or prefix s3://BUCKET/PREFIX of objects, below which jobs may name paths on this node; may be given
    /// several times, also as USER=DIR. The roots of the server apply too [default: only those of the server]
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub allow_root: Vec<String>,
    /// Directory that this node sees and not every node: jobs of all users may list and read all files below it, as
    /// inputs seen:DIR, and their maps run here. May be given several times
    #[arg(long, value_name = "DIR")]
    pub sees: Vec<PathBuf>,
    /// Memory for the buffers of all jobs that run here at once [default: half of the machine or control group]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Generic resource of this node with its amount, as in gpu=2, for programs that ask for it (submit --resource, and
    /// `resources` of workflow steps); may be given several times
    #[arg(long, value_name = "NAME=AMOUNT")]
    pub resource: Vec<String>,
    /// Directory for intermediate data and stored files; may be given several times [default: disk in the state directory]
    #[arg(long, value_name = "DIR")]
    pub disk: Vec<PathBuf>,
    /// Maximum bytes of shipped files that are cached on the first disk for later jobs, and of local copies of stored
    /// files that no task uses [default: 4G]
    #[arg(long, value_name = "SIZE")]
    pub shipped_max: Option<String>,
    /// Percentage of each disk that stored files leave free for intermediate data, 0 to 90
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=90))]
    pub shuffle_reserve: u8,
    /// Least time in which the node reads and verifies all of its stored files once, such as 12h or 7d
    #[arg(long, value_name = "DURATION", default_value = "7d")]
    pub scrub_every: String,
    /// Verify a local copy of a stored file again before a program gets it, if this was not done for so long; 0
    /// verifies it each time
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub verify_after: String,
    /// Keep ranges of stored files that maps read for the second time from other nodes, up to so many bytes, on the disks
    /// of this node: the next read finds them there. 0 keeps none
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub cache: String,
    /// Unique name of the node [default: name of the host with the process id]
    #[arg(long)]
    pub name: Option<String>,
    /// Run the node as a child process and restart it after a crash, but not after it is stopped, drained or refused
    #[arg(long)]
    pub supervise: bool,
    /// Take part in fault drills (`sailfish drill`): an administrator may end or pause this process, and damage data
    /// and kill programs of drill jobs
    #[arg(long)]
    pub drills: bool,
    /// Replaces a node that crashed
    #[arg(long, hide = true)]
    pub again: bool,
    /// End when standard input ends
    #[arg(long, hide = true)]
    pub with_parent: bool,
}

#[derive(Debug, Args)]
pub struct LocalArgs {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: u32,
    /// Number of racks, over which the nodes are spread
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub racks: u32,
    /// Address and port of the server; port 0 picks a free one
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
    /// Generic resource of each node with its amount, as in gpu=2; may be given several times
    #[arg(long, value_name = "NAME=AMOUNT")]
    pub resource: Vec<String>,
    /// Percentage of each disk that stored files leave free for intermediate data, 0 to 90
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(0..=90))]
    pub shuffle_reserve: u8,
    /// Least time in which each node reads and verifies all of its stored files once, such as 12h or 7d
    #[arg(long, value_name = "DURATION", default_value = "7d")]
    pub scrub_every: String,
    /// Verify a local copy of a stored file again before a program gets it, if this was not done for so long; 0
    /// verifies it each time
    #[arg(long, value_name = "DURATION", default_value = "1d")]
    pub verify_after: String,
    /// Keep ranges of stored files that maps read for the second time from other nodes, up to so many bytes, on the disks
    /// of each node: the next read finds them there. 0 keeps none
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub cache: String,
    /// Admit each program of this machine, as by `server --no-tokens`
    #[arg(long)]
    pub no_tokens: bool,
    /// End when standard input ends
    #[arg(long, hide = true)]
    pub with_parent: bool,
}
