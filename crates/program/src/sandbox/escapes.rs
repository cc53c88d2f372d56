//! Escapes from the sandbox: each one succeeds where the layers are off that it names, and fails where they are on.

use crate::context::FunctionContext;
use crate::programs::Programs;
use crate::sandbox::{Layers, Named, Sandbox};
use crate::{PipelineProgram, ProgramSpec, Streams, run_pipeline};
use containment::Containment;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Code before every escape. `SECRET`, `VICTIM` and `PORT` are a file, a process and a listener outside; `call` makes a
/// system call, and `must` ends the attempt if that fails.
const PRELUDE: &str = "
import ctypes, os, socket, struct, sys
SECRET, VICTIM, PORT = os.environ['SECRET'], int(os.environ['VICTIM']), int(os.environ['PORT'])
OUTSIDE = os.path.dirname(SECRET)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(*args):
    return libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
def must(result):
    if result < 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    return result
def read(path):
    return open(path, 'rb').read(4096)
";

/// Letters of the layers: files (Landlock), calls (seccomp), rights of root, namespaces.
const ESCAPES: &[(&str, &str, &str)] = &[
    ("read a file", "F", "assert b'secret' in read(SECRET)"),
    ("write a file", "F", "open(SECRET, 'ab').write(b'x')"),
    ("truncate a file", "F", "os.truncate(OUTSIDE + '/truncated', 0)"),
    ("remove a file", "F", "os.remove(OUTSIDE + '/removed')"),
    ("make a file", "F", "open(OUTSIDE + '/made', 'w')"),
    ("rename a file", "F", "os.rename(OUTSIDE + '/renamed', OUTSIDE + '/other')"),
    ("link a file into the own directory", "F", "os.link(SECRET, 'link')"),
    ("move a file into the own directory", "F", "os.rename(OUTSIDE + '/moved', 'moved')"),
    ("read by way of a symbolic link", "F", "os.symlink(SECRET, 'sym'); assert b'secret' in read('sym')"),
    (
        "read by a path longer than the kernel takes",
        "F",
        "
for _ in range(20):
    os.mkdir('d' * 250); os.chdir('d' * 250)
os.link(SECRET, 'x')",
    ),
    ("run a file", "F", "os.execv(OUTSIDE + '/tool', ['tool'])"),
    ("list a directory", "F", "assert 'secret' in os.listdir(OUTSIDE)"),
    ("read the shadow file", "F", "read('/etc/shadow')"),
    ("environment of other processes", "FNC", "assert read(f'/proc/{VICTIM}/environ')"),
    ("words of other processes", "FN", "assert b'sleep' in read(f'/proc/{VICTIM}/cmdline')"),
    ("descriptors of other processes", "FN", "assert os.listdir(f'/proc/{VICTIM}/fd')"),
    ("memory of other processes by /proc", "FNC", "open(f'/proc/{VICTIM}/mem', 'rb+')"),
    ("root directory of other processes", "FNC", "assert b'secret' in read(f'/proc/{VICTIM}/root{SECRET}')"),
    ("signal another process", "FN", "os.kill(VICTIM, 0)"),
    ("trace another process", "FSNC", "must(libc.ptrace(16, VICTIM, 0, 0)); libc.ptrace(17, VICTIM, 0, 0)"),
    (
        "memory of other processes by a call",
        "FSNC",
        "
start = int(read(f'/proc/{VICTIM}/maps').split(b'-')[0], 16)
buffer = ctypes.create_string_buffer(8)
local, remote = (ctypes.c_long * 2)(ctypes.addressof(buffer), 8), (ctypes.c_long * 2)(start, 8)
must(call(310, VICTIM, local, 1, remote, 1, 0))",
    ),
    ("descriptor of another process", "FSNC", "must(call(438, must(call(434, VICTIM, 0)), 0, 0))"),
    ("compare processes", "FSNC", "must(call(312, VICTIM, os.getpid(), 2, 0, 0))"),
    ("limit another process", "SN", "must(call(302, VICTIM, 4, struct.pack('QQ', 0, 0), None))"),
    (
        "limit the init",
        "S",
        "
limit = ctypes.create_string_buffer(16)
must(call(302, os.getppid(), 7, None, limit)); must(call(302, os.getppid(), 7, limit, None))",
    ),
    ("processors of another process", "SNC", "os.sched_setaffinity(VICTIM, os.sched_getaffinity(0))"),
    ("priority of another process", "SNC", "os.setpriority(os.PRIO_PROCESS, VICTIM, 19)"),
    ("disk priority of another process", "SNC", "must(call(251, 1, VICTIM, 2 << 13 | 4))"),
    ("disk priority of all processes", "SC", "must(call(251, 3, os.getuid(), 2 << 13 | 4))"),
    ("namespaces of another process", "FSNC", "must(libc.setns(os.open(f'/proc/{VICTIM}/ns/mnt', 0), 0))"),
    ("keys of the user", "S", "must(call(250, 0, -4, 0))"),
    ("io_uring", "S", "must(call(425, 4, ctypes.create_string_buffer(240)))"),
    ("a new user namespace", "S", "must(libc.unshare(0x10000000))"),
    ("a new mount namespace", "SC", "must(libc.unshare(0x20000))"),
    (
        "a user namespace by clone3",
        "S",
        "args = struct.pack('QQQQQQQQ', 0x10000000, 0, 0, 0, 17, 0, 0, 0); pid = call(435, args, 64); must(pid); os._exit(0) if pid == 0 else None",
    ),
    ("mount", "FSC", "must(libc.mount(b'x', b'/mnt', b'tmpfs', 0, None))"),
    ("change the root", "SC", "os.mkdir('r'); os.chroot('r')"),
    (
        "load a program into the kernel",
        "SC",
        "
attr = struct.pack('IIII', 2, 4, 8, 1) + bytes(112)
must(call(321, 0, attr, len(attr)))",
    ),
    (
        "open a file by its handle",
        "SC",
        "
handle = ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128))
mount = ctypes.c_int()
must(call(303, -100, os.fsencode('.'), handle, ctypes.byref(mount), 0))
must(call(304, os.open('.', 0), handle, 0))",
    ),
    ("watch a file system", "SC", "must(call(300, 0, 0))"),
    ("log of the kernel", "SC", "must(libc.klogctl(3, ctypes.create_string_buffer(4096), 4096))"),
    (
        "counters of the processor",
        "SC",
        "must(call(298, struct.pack('IIQ', 1, 128, 0) + bytes(112), 0, -1, -1, 0))",
    ),
    ("faults of memory", "S", "must(call(323, 1))"),
    (
        "name of the machine",
        "SC",
        "must(call(170, os.fsencode(os.uname().nodename), len(os.uname().nodename)))",
    ),
    ("connect by TCP", "S", "socket.create_connection(('127.0.0.1', PORT), 5)"),
    (
        "send by UDP",
        "S",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
    ),
    ("talk to the kernel by netlink", "S", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"),
    ("talk to the host of a virtual machine", "S", "must(call(41, 40, 1, 0))"),
    ("raw packets", "SC", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    ("abstract socket", "F", "socket.socket(socket.AF_UNIX).connect('\\0escape-' + os.environ['PORT'])"),
    (
        "socket of a service in /run",
        "SN",
        "socket.socket(socket.AF_UNIX).connect('/run/escape-' + os.environ['PORT'])",
    ),
    (
        "socket of a service in /tmp",
        "SN",
        "socket.socket(socket.AF_UNIX).connect('/tmp/.s.escape-' + os.environ['PORT'])",
    ),
    ("shared memory of others", "FN", "read('/dev/shm/escape-' + os.environ['PORT'])"),
    (
        "core pattern",
        "F",
        "pattern = read('/proc/sys/kernel/core_pattern'); open('/proc/sys/kernel/core_pattern', 'wb').write(pattern)",
    ),
    ("control groups", "F", "open('/sys/fs/cgroup/pids/cgroup.procs', 'w').write('0')"),
    ("device of a disk", "C", "os.mknod('disk', 0o60600, os.makedev(254, 0))"),
    ("owner of a file", "C", "open('own', 'w'); os.chown('own', 1, 1)"),
    ("priority over others", "C", "os.setpriority(os.PRIO_PROCESS, 0, -10)"),
    ("processor without end", "C", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"),
];

/// Everything that the escapes try to reach.
struct Outside {
    directory: tempfile::TempDir,
    work: tempfile::TempDir,
    victim: Child,
    port: u16,
    _listeners: (std::net::TcpListener, Vec<UnixListener>),
}

impl Outside {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["secret", "truncated", "removed", "renamed", "moved"] {
            std::fs::write(directory.path().join(name), "secret\n").unwrap();
        }
        std::fs::copy("/bin/true", directory.path().join("tool")).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let mut sockets = Vec::new();
        for path in Self::sockets(port) {
            let _ = std::fs::remove_file(&path);
            // Another user than root makes none in /run.
            sockets.extend(UnixListener::bind(&path));
        }
        let name = SocketAddr::from_abstract_name(format!("escape-{port}")).unwrap();
        sockets.push(UnixListener::bind_addr(&name).unwrap());
        std::fs::File::create(format!("/dev/shm/escape-{port}")).unwrap().write_all(b"secret").unwrap();
        let victim = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().unwrap();
        let work = tempfile::tempdir_in("/var/tmp").unwrap();
        Self { directory, work, victim, port, _listeners: (tcp, sockets) }
    }

    fn sockets(port: u16) -> [String; 2] {
        [format!("/run/escape-{port}"), format!("/tmp/.s.escape-{port}")]
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        for path in Self::sockets(self.port).into_iter().chain([format!("/dev/shm/escape-{}", self.port)]) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the layers without those of the letters.
fn layers_without(letters: &str) -> Layers {
    Layers { files: !letters.contains('F'), calls: !letters.contains('S'), rights: !letters.contains('C') }
}

/// Tries an escape without some layers. Err: the last line of its standard error.
fn attempt(outside: &Outside, code: &str, without: &str) -> Result<(), String> {
    let containment = match without.contains('N') {
        true => Containment::Subreaper,
        false => Containment::Namespaces,
    };
    let open: crate::OpenNamed =
        Arc::new(|path: &Path| Ok(std::fs::File::options().read(true).open(path)?.into()));
    let named = Named { readable: Vec::new(), work_dir: None, open };
    let sandbox = Sandbox { layers: layers_without(without), named: Some(named), ..Sandbox::default() };
    let directory = tempfile::tempdir_in(outside.work.path()).unwrap();
    let variables = [
        // An interpreter whose prefix is the root directory opens nothing.
        ("SHELL", "/usr/../bin/sh".to_string()),
        ("SECRET", outside.directory.path().join("secret").display().to_string()),
        ("VICTIM", outside.victim.id().to_string()),
        ("PORT", outside.port.to_string()),
    ];
    let context = FunctionContext {
        programs: Arc::new(Programs::contained(containment)),
        work_dir: directory.path().to_path_buf(),
        start_dir: directory.path().to_path_buf(),
        env: variables.map(|(name, value)| (name.to_string(), value)).to_vec(),
        task_env: Vec::new(),
        kept_for: None,
        record_bytes_max: 0,
        buffer_bytes: 0,
        cancelled: Arc::default(),
        stderr_log: None,
        limits: Default::default(),
        disk_dirs: Vec::new(),
        reports: Arc::default(),
        sandbox: Some(Arc::new(sandbox)),
        declared_reads: None,
        any_exit_code: false,
        named: Vec::new(),
    };
    let words = ["/usr/bin/python3".to_string(), "-c".to_string(), format!("{PRELUDE}\n{code}\n")];
    let programs = Arc::clone(&context.programs);
    let spec = ProgramSpec::new(&words, &context);
    let alone = vec![PipelineProgram::alone(context, spec)];
    let outcome = run_pipeline(alone, vec![Streams::shown()], Vec::new(), |_| Ok(None), |_| {});
    programs.leave_slot();
    outcome.map_err(|failure| failure.stderr_tail.last().cloned().unwrap_or(failure.message))
}

#[test]
fn escapes_fail_by_the_layers_they_name() {
    // Another user has fewer ways out: without the layers some escapes fail all the same.
    let is_root = rustix::process::geteuid().is_root();
    let mut wrong = Vec::new();
    for (name, without, code) in ESCAPES {
        if is_root && let Err(reason) = attempt(&Outside::new(), code, without) {
            wrong.push(format!("{name}: does not succeed without {without}: {reason}"));
        }
        let outside = Outside::new();
        match attempt(&outside, code, "") {
            Ok(()) => wrong.push(format!("{name}: succeeds")),
            Err(reason) => {
                println!("{name}: {reason}");
                // A mistake in the escape is no protection.
                let is_mistake =
                    ["SyntaxError", "NameError", "TypeError", "IndentationError", "ModuleNotFound"];
                if is_mistake.iter().any(|word| reason.contains(word)) {
                    wrong.push(format!("{name}: {reason}"));
                }
            }
        }
    }
    assert!(ESCAPES.len() >= 40 && wrong.is_empty(), "{}\n{} escapes", wrong.join("\n"), ESCAPES.len());
}
