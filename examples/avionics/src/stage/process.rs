//! Started programs, which end at the latest when their handle is dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Result;

/// A started program, whose output goes to a file with the program's name.
pub(super) struct Process {
    pub(super) name: String,
    child: Child,
    /// The standard input of the program. The server, the sensors and the display end when it is
    /// closed.
    input: Option<ChildStdin>,
    log: PathBuf,
}

impl Process {
    pub(super) fn start(name: &str, command: &mut Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let command = command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(file);
        let mut child = command.spawn().map_err(|error| format!("{name} does not start: {error}"))?;
        let input = child.stdin.take();
        Ok(Process { name: name.into(), child, input, log })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until the process ends, at most for `patience`. If the process fails or does not end,
    /// the error contains its output.
    pub(super) fn finish(&mut self, patience: Duration) -> Result<()> {
        drop(self.input.take());
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            match self.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("{} ended with {status}\n{}", self.name, self.said()).into()),
                None => sleep(Duration::from_millis(10)),
            }
        }
        Err(format!("{} did not end in {patience:?}\n{}", self.name, self.said()).into())
    }

    /// Returns the output so far.
    pub(super) fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
