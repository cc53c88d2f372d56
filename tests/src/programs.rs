//! Programs of jobs that wait until the test lets them go on.

use crate::{Fifo, Sandbox};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Stands in a script for a loop that ends when the test opens the gate: see [`Sandbox::open_gate`].
const GATE: &str = "GATE";

/// Hands on its input when the gate is open.
pub const WAITS_AT_THE_GATE: &str = "#!/bin/sh\nGATE\nexec cat\n";

/// Reads the first line of its input, waits until the gate is open, and hands on everything.
pub const WAITS_AFTER_A_LINE: &str = "#!/bin/sh
IFS= read -r line
GATE
printf '%s\\n' \"$line\"
exec cat
";

/// Hands on its input. The task whose last line ends with LAST, which is to be filled in, ends when the gate is open.
pub const WAITS_AT_ITS_END: &str = "#!/bin/sh
exec awk '{ print } END { if ($0 ~ /LAST$/) system(\"GATE\") }'
";

/// Line of the input behind which [`LAST_WORDS_MAPPER`] waits.
pub const LAST_WORDS: &str = "the last words\n";

/// Hands on its input, and behind [`LAST_WORDS`] waits until the gate is open, so that a job has one map that is not over. It goes by
/// what it reads because only jobs of Hadoop Streaming are told which file that is from.
pub const LAST_WORDS_MAPPER: &str = r#"#!/bin/sh
export LC_ALL=C
exec awk '{ print } $0 == "the last words" { fflush(); system("GATE") }'
"#;

/// A program, and two pipes: it says `here` on the first, and reads a line from the second before it goes on.
pub struct WaitingProgram {
    pub here: Fifo,
    pub go: Fifo,
    /// Its path, for a command line.
    pub path: String,
}

impl Sandbox {
    /// Writes an executable script in which HERE stands for the directory of the sandbox, and GATE for a loop that ends when the
    /// gate is open. Returns its path, for a command line.
    pub fn program(&self, name: &str, text: &str) -> String {
        let gate = format!("until [ -e HERE/{} ]; do sleep 0.05; done", Self::GATE_FILE);
        let path = self.script(name, &text.replace(GATE, &gate).replace("HERE", &self.directory()));
        path.to_str().expect("a sandbox has a plain path").to_string()
    }

    /// Returns the directory of the sandbox, for a script.
    pub fn directory(&self) -> String {
        self.path("").to_str().expect("a sandbox has a plain path").trim_end_matches('/').to_string()
    }

    /// Lets all programs go on that wait at the gate.
    pub fn open_gate(&self) {
        self.write(Self::GATE_FILE, "");
    }

    /// Lets programs that come to the gate wait again.
    pub fn close_gate(&self) {
        let removed = std::fs::remove_file(self.path(Self::GATE_FILE));
        assert!(removed.is_ok() || !self.path(Self::GATE_FILE).exists(), "the gate stays open");
    }

    /// Writes a program that hands on its input; each of its processes first says that it is there, and waits for a line.
    pub fn waiting_program(&self, name: &str) -> WaitingProgram {
        self.waiting_script(name, "WAIT")
    }

    /// The same, but only the first of its processes waits.
    pub fn waiting_once_program(&self, name: &str) -> WaitingProgram {
        self.waiting_script(
            name,
            &format!("if mkdir HERE/first-{} 2>/dev/null; then WAIT; fi", name.replace('/', "-")),
        )
    }

    /// The same, but each of its processes waits that comes before the gate is open.
    pub fn waiting_before_gate_program(&self, name: &str) -> WaitingProgram {
        self.waiting_script(name, &format!("[ -e HERE/{} ] || {{ WAIT; }}", Self::GATE_FILE))
    }

    fn waiting_script(&self, name: &str, line: &str) -> WaitingProgram {
        let pipe = |end: &str| self.fifo(&format!("{}-{end}", name.replace('/', "-")));
        let (here, go) = (pipe("here"), pipe("go"));
        let wait = format!("echo here > '{}'; read line < '{}'", here.text(), go.text());
        let text = format!("#!/bin/sh\n{}\nexec cat\n", line.replace("WAIT", &wait));
        let path = self.program(&format!("{name}.sh"), &text);
        WaitingProgram { here, go, path }
    }
}

/// Returns whether any process has an argument that names a file below a directory.
pub fn any_process_names(directory: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").expect("Linux has it").flatten();
    processes.into_iter().any(|process| {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let mut paths = arguments.split(|byte| *byte == 0).map(OsStr::from_bytes).map(Path::new);
        paths.any(|path| path.starts_with(directory))
    })
}
