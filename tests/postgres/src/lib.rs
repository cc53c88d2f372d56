//! A PostgreSQL for tests: a cluster of its own in a temporary directory, on a port of its own, gone with the value.
//! PostgreSQL refuses to run as root; then it runs as `postgres` or `nobody`.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Directory in which distributions put the programs, besides the directories of `PATH`.
const VERSIONED_DIR: &str = "/usr/lib/postgresql";
/// Ports that somebody else takes between our look and PostgreSQL's are tried again, this often.
const TRIES_MAX: u32 = 5;
/// Starts after a kill, each of which fails while processes of the one before still end.
const BEGINS_MAX: u32 = 100;
const USER: &str = "sailfish";
/// Password of a PostgreSQL that asks for one.
pub const PASSWORD: &str = "a secret: 'of' the database?";

/// A PostgreSQL that runs until the value is dropped.
pub struct PrivatePostgres {
    dir: TempDir,
    programs: PathBuf,
    /// None where this process is not root: then PostgreSQL runs as ourselves.
    run_as: Option<(u32, u32)>,
    port: u16,
}

/// Advice if no PostgreSQL is installed.
const MISSING: &str = "there is no PostgreSQL (initdb, pg_ctl): install the package postgresql (Debian, Ubuntu, Alpine, \
                       Homebrew) or postgresql-server (Fedora)";

impl PrivatePostgres {
    /// Starts one for a test; where there is none to start, says so in the list of what could not run.
    ///
    /// # Panics
    /// Where there is a PostgreSQL and it does not start.
    pub fn start_or_say(what: &str, settings: &[&str]) -> Option<Self> {
        if programs().is_some() {
            return Some(Self::start(settings).expect("PostgreSQL starts in a temporary directory"));
        }
        println!("NOT RUN: {what}: {MISSING}");
        // A passing test's output is not shown: `make test` prints this list at its end.
        if let Some(list) = std::env::var_os("SAILFISH_SKIPPED")
            && let Ok(mut list) = fs::OpenOptions::new().append(true).open(list)
        {
            let _ = std::io::Write::write_all(&mut list, format!("{what}: {MISSING}\n").as_bytes());
        }
        None
    }

    /// Starts a PostgreSQL that admits the user by TCP only over TLS with [`PASSWORD`]; its local socket trusts every user.
    ///
    /// # Panics
    /// Where there is a PostgreSQL and it does not start.
    pub fn start_with_tls_or_say(what: &str) -> Option<Self> {
        if programs().is_none() {
            return Self::start_or_say(what, &[]);
        }
        let demand_tls = |postgres: &Self| postgres.demand_tls().map_err(|error| error.to_string());
        let postgres = Self::start_prepared(&["ssl = on"], demand_tls).expect("PostgreSQL starts with TLS");
        let set = format!("alter role {USER} password '{}'", PASSWORD.replace('\'', "\'\'"));
        let (port, dir) = (postgres.port.to_string(), postgres.dir.path().display().to_string());
        let address = ["--no-psqlrc", "-h", &dir, "-p", &port, "-U", USER, "-d", "postgres"];
        postgres.run("psql", &[&address[..], &["-c", &set]].concat()).expect("its socket asks for nothing");
        Some(postgres)
    }

    /// The certificate of the authority that signed that of a PostgreSQL with TLS.
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("authority.pem")
    }

    /// Writes certificates, and the rule of whom it admits.
    fn demand_tls(&self) -> Result<(), Box<dyn std::error::Error>> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        fs::write(self.authority(), authority.pem())?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["127.0.0.1".to_string()])?.signed_by(&key, &authority)?;
        let rule = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
        for (name, text) in [
            ("server.crt", certificate.pem()),
            ("server.key", key.serialize_pem()),
            ("pg_hba.conf", rule.to_string()),
        ] {
            let path = self.data().join(name);
            fs::write(&path, text)?;
            // It does not start where others may read its key.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            if let Some((user, group)) = self.run_as {
                chown(&path, Some(user), Some(group))?;
            }
        }
        Ok(())
    }

    /// Makes and starts one; the error says what is missing. `settings` are lines of its configuration.
    pub fn start(settings: &[&str]) -> Result<Self, String> {
        Self::start_prepared(settings, |_| Ok(()))
    }

    fn start_prepared(
        settings: &[&str],
        prepare: impl FnOnce(&Self) -> Result<(), String>,
    ) -> Result<Self, String> {
        let programs = programs().ok_or(MISSING)?;
        let run_as = other_user()?;
        let dir = tempfile::Builder::new()
            .prefix("sailfish-postgres-")
            .tempdir()
            .map_err(|error| error.to_string())?;
        if let Some((user, group)) = run_as {
            chown(dir.path(), Some(user), Some(group)).map_err(|error| error.to_string())?;
        }
        let mut postgres = Self { dir, programs, run_as, port: 0 };
        let data = postgres.data();
        let data = data.to_str().ok_or("the temporary directory is not UTF-8")?;
        // Nothing outlives the test, so that a synced disk would prove nothing here.
        postgres.run(
            "initdb",
            &["-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
        )?;
        let mut text =
            fs::read_to_string(postgres.data().join("postgresql.conf")).map_err(|error| error.to_string())?;
        for setting in settings {
            text.push_str(setting);
            text.push('\n');
        }
        fs::write(postgres.data().join("postgresql.conf"), text).map_err(|error| error.to_string())?;
        prepare(&postgres)?;
        let mut last = String::new();
        for _ in 0..TRIES_MAX {
            postgres.port = free_port()?;
            match postgres.begin() {
                Ok(()) => return Ok(postgres),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The address of a database in it; `postgres` exists from the start.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes a new, empty database; the answer is its address.
    pub fn create_database(&self, name: &str) -> String {
        let port = self.port.to_string();
        self.run("createdb", &["-h", "127.0.0.1", "-p", &port, "-U", USER, name])
            .expect("a running PostgreSQL makes a database");
        self.url(name)
    }

    /// Stops it in the way named (`smart`, `fast`, `immediate`: as after a crash) and starts it again, on the same port.
    pub fn restart(&self, mode: &str) {
        self.stop(mode);
        self.begin().expect("what ran once starts again");
    }

    /// Stops it and waits until it is gone.
    pub fn stop(&self, mode: &str) {
        let data = self.data();
        self.run("pg_ctl", &["-D", &data.to_string_lossy(), "-m", mode, "-w", "stop"])
            .expect("a running PostgreSQL stops");
    }

    /// Starts it again after [`PrivatePostgres::stop`].
    pub fn begin(&self) -> Result<(), String> {
        let data = self.data();
        let options =
            format!("-p {} -c listen_addresses=127.0.0.1 -k {}", self.port, self.dir.path().display());
        let log = self.dir.path().join("log");
        let arguments = [
            "-D",
            &data.to_string_lossy(),
            "-l",
            &log.to_string_lossy(),
            "-o",
            &options,
            "-w",
            "-t",
            "60",
            "start",
        ];
        self.run("pg_ctl", &arguments)
            .map_err(|error| format!("{error}\n{}", fs::read_to_string(&log).unwrap_or_default()))
    }

    /// Kills all of its processes at once, as when the machine loses power, and starts it again on the same port.
    ///
    /// # Panics
    /// Where it does not run, or does not come back.
    pub fn kill_and_begin(&self) {
        let lock = fs::read_to_string(self.data().join("postmaster.pid"))
            .expect("a running PostgreSQL has a lock file");
        let pid = lock.lines().next().and_then(|line| line.trim().parse().ok()).and_then(Pid::from_raw);
        let pid = pid.expect("the first line of the lock file is the first process");
        // The others see that the first is gone and end; the next start waits for them.
        kill_process(pid, Signal::KILL).expect("a process of ours can be killed");
        let mut last = String::new();
        for _ in 0..BEGINS_MAX {
            match self.begin() {
                Ok(()) => return,
                Err(error) => last = error,
            }
        }
        panic!("PostgreSQL does not come back: {last}");
    }

    /// A `psql` on one of its databases, without anybody's settings.
    pub fn psql(&self, database: &str) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", &self.url(database)]);
        command.env_remove("PGOPTIONS");
        command
    }

    /// The directory of its data.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(self.programs.join(program));
        command
            .args(arguments)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .env_remove("LC_ALL")
            .env("LANG", "C");
        for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
            if name.starts_with("PG") {
                command.env_remove(name);
            }
        }
        if let Some((user, group)) = self.run_as {
            command.uid(user).gid(group);
        }
        // A server keeps what it inherits: into a file, for nobody reads to the end of a pipe that stays open.
        let said = tempfile::tempfile().map_err(|error| error.to_string())?;
        let also = said.try_clone().map_err(|error| error.to_string())?;
        command.stdout(also).stderr(said.try_clone().map_err(|error| error.to_string())?);
        let status = command.status().map_err(|error| format!("{program}: {error}"))?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("{program} ended with {status}: {}", read_again(said))),
        }
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        let data = self.data();
        if data.join("postmaster.pid").exists() {
            let _ = self.run("pg_ctl", &["-D", &data.to_string_lossy(), "-m", "immediate", "-w", "stop"]);
        }
    }
}

fn read_again(mut file: fs::File) -> String {
    use std::io::{Read, Seek};
    let mut text = String::new();
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    text
}

/// The directory with `initdb`: the newest version that a distribution keeps, or one of `PATH`.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONED_DIR).into_iter().flatten().filter_map(Result::ok);
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .collect();
    versions.sort();
    if let Some((_, bin)) = versions.pop() {
        return Some(bin);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .find(|dir| ["initdb", "pg_ctl", "createdb"].iter().all(|name| dir.join(name).exists()))
}

/// Returns the user and group that PostgreSQL runs as; None if we are not root. Fails if there is no user `postgres` or `nobody`.
fn other_user() -> Result<Option<(u32, u32)>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let text = match fs::read_to_string("/etc/passwd") {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.to_string()),
    };
    let user = |name: &str| {
        text.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            (fields.first() == Some(&name))
                .then(|| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)))
                .flatten()
        })
    };
    match user("postgres").or_else(|| user("nobody")) {
        Some(ids) => Ok(Some(ids)),
        None => Err("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as"
            .to_string()),
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}
