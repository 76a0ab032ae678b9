//! Child processes of a benchmark. They end at the end of their standard input, so they do not
//! outlive this process; a child process that does not end in time is killed.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use corelane_sys::clock;
use corelane_sys::poll;

use crate::Failure;
use crate::placement::{Placement, Side};

/// Maximum time until a program is ready. To activate a million servants takes seconds.
const START: Duration = Duration::from_secs(60);

const END: Duration = Duration::from_secs(5);

/// Maximum length of a line in bytes, enough for 10,000,000 call times.
const LONGEST_LINE: usize = 200 << 20;

#[derive(Debug)]
pub(crate) struct RunningProgram {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    unread: Vec<u8>,
}

impl RunningProgram {
    pub(crate) fn start(
        name: &str,
        mut command: Command,
        placement: &Placement,
        side: Side,
    ) -> Result<(Self, String), Failure> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = placement
            .start(side, command)
            .map_err(|error| Failure::new(format!("{name} cannot be started: {error}{}", refusal(&error))))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new(format!("{name} has no standard input and output")));
        };
        let mut service =
            RunningProgram { name: name.to_owned(), child, input: Some(input), output, unread: Vec::new() };
        let line = service.line(START)?;
        match line.strip_prefix("ready") {
            Some(rest) => Ok((service, rest.trim().to_owned())),
            None => Err(Failure::new(format!("{name} is not ready, but says: {line}"))),
        }
    }

    /// Sends a line and returns the answer. Fails if the program has ended, answers `error ...`, or
    /// does not answer in time.
    pub(crate) fn ask(&mut self, line: &str, patience: Duration) -> Result<String, Failure> {
        self.tell(line)?;
        let answer = self.line(patience)?;
        self.understood(answer)
    }

    /// Returns the answer to a line that [`tell`](Self::tell) sent; `None` if there is none within
    /// this time.
    pub(crate) fn answer(&mut self, within: Duration) -> Result<Option<String>, Failure> {
        let answer = self.line_within(within)?;
        answer.map(|answer| self.understood(answer)).transpose()
    }

    fn understood(&self, answer: String) -> Result<String, Failure> {
        match answer.strip_prefix("error ") {
            Some(reason) => Err(Failure::new(format!("{}: {reason}", self.name))),
            None => Ok(answer),
        }
    }

    #[must_use]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn tell(&mut self, line: &str) -> Result<(), Failure> {
        let Some(input) = &mut self.input else {
            return Err(Failure::new(format!("{} has no standard input any more", self.name)));
        };
        // The line is one write, because the program may read once per line.
        let told = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
        told.map_err(|error| Failure::new(format!("cannot write to {}: {error}", self.name)))
    }

    pub(crate) fn line(&mut self, patience: Duration) -> Result<String, Failure> {
        let line = self.line_within(patience)?;
        line.ok_or_else(|| Failure::new(format!("{} has written nothing for {} s", self.name, patience.as_secs())))
    }

    fn line_within(&mut self, patience: Duration) -> Result<Option<String>, Failure> {
        let deadline = clock::now() + patience;
        let mut searched = 0;
        loop {
            if let Some(end) = self.unread[searched..].iter().position(|&octet| octet == b'\n') {
                let rest = self.unread.split_off(searched + end + 1);
                let mut line = std::mem::replace(&mut self.unread, rest);
                line.pop();
                return String::from_utf8(line)
                    .map(Some)
                    .map_err(|_| Failure::new(format!("the output of {} is not UTF-8", self.name)));
            }
            searched = self.unread.len();
            if searched > LONGEST_LINE {
                return Err(Failure::new(format!("{} writes a line that is too long", self.name)));
            }
            let trouble = |error: io::Error| Failure::new(format!("{}: {error}", self.name));
            if !poll::wait_readable(self.output.as_fd(), Some(deadline)).map_err(trouble)? {
                return Ok(None);
            }
            let mut chunk = [0; 64 * 1024];
            let count = self.output.read(&mut chunk).map_err(trouble)?;
            if count == 0 {
                return Err(Failure::new(format!("{} has ended (its errors are above)", self.name)));
            }
            self.unread.extend_from_slice(&chunk[..count]);
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + END;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn refusal(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (a fixed priority needs CAP_SYS_NICE or RLIMIT_RTPRIO: see `corelane doctor`, or leave --fifo out)"
        }
        io::ErrorKind::InvalidInput => " (does the core in --core or --cores exist?)",
        io::ErrorKind::NotFound => " (the program does not exist)",
        _ => "",
    }
}

pub(crate) fn serve_lines(mut answer: impl FnMut(&str) -> Option<String>) -> io::Result<()> {
    for line in io::stdin().lines() {
        let Ok(line) = line else { return Ok(()) };
        if let Some(text) = answer(&line) {
            let mut output = io::stdout().lock();
            writeln!(output, "{text}")?;
            output.flush()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<(RunningProgram, String), Failure> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        RunningProgram::start("the shell", command, &Placement::default(), Side::Server)
    }

    #[test]
    fn program_answers_lines_and_ends_with_its_input() {
        let (mut service, rest) = shell("echo ready steady; while read a; do echo got $a; done").unwrap();
        assert_eq!(rest, "steady");
        assert_eq!(service.ask("one", START).unwrap(), "got one");
        let process = format!("/proc/{}", service.pid());
        assert!(std::path::Path::new(&process).exists());
        drop(service);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn errors_of_a_program_are_reported() {
        let said = |script| shell(script).unwrap_err().to_string();
        assert!(said("exit 3").contains("has ended"));
        assert!(said("echo no; read a").contains("says: no"));
        let (mut service, _) = shell("echo ready; read a; echo error because; read a").unwrap();
        assert!(service.ask("one", START).unwrap_err().to_string().contains("because"));
        assert!(service.line(Duration::from_millis(20)).unwrap_err().to_string().contains("written nothing"));
        let missing = Command::new("/nonexistent/program");
        let refused = RunningProgram::start("it", missing, &Placement::default(), Side::Server).unwrap_err();
        assert!(refused.to_string().contains("does not exist"), "{refused}");
    }
}
