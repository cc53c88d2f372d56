//! A run of the binary that is over.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Outputs and exit status of a run.
pub struct Finished {
    /// The command line, for messages.
    pub command: String,
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Finished {
    /// The exit code; None where a signal ended the process.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that ended the process.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as one JSON value.
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_slice(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("standard output is not JSON: {error}\n{}", self.story()),
        }
    }

    /// Everything known, for a message.
    pub fn story(&self) -> String {
        let text = self.text();
        let shown: String = text.chars().take(4000).collect();
        format!("$ {}\n{}\n--- stdout\n{shown}\n--- stderr\n{}", self.command, self.status, self.stderr)
    }

    /// Exit code 0 and no warning: WARN and ERROR mean that a person must look.
    #[track_caller]
    pub fn expect_success(self) -> Finished {
        assert!(self.status.success(), "should have succeeded:\n{}", self.story());
        let loud = self.stderr.lines().find(|line| line.contains(" WARN ") || line.contains(" ERROR "));
        assert!(loud.is_none(), "should have been quiet:\n{}", self.story());
        self
    }

    /// The exact exit code, and each text somewhere on standard error or standard output. A panic is never
    /// a proper failure.
    #[track_caller]
    pub fn expect_failure(self, code: i32, texts: &[&str]) -> Finished {
        assert_eq!(self.code(), Some(code), "should have ended with {code}:\n{}", self.story());
        let said = format!("{}\n{}", self.text(), self.stderr);
        for text in texts {
            assert!(said.contains(text), "should have said {text:?}:\n{}", self.story());
        }
        assert!(!said.contains("panicked at"), "should not have panicked:\n{}", self.story());
        self
    }
}
