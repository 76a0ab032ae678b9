//! Where clients and servers run: on which cores, in which scheduling class.

use std::fmt;
use std::io;
use std::process::{Child, Command};

use corelane_sys::thread::{self, Builder, CpuSet, Scheduling};

/// Which cores the two sides are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Cores {
    /// Wherever the kernel likes.
    #[default]
    Any,
    /// Both on one core.
    One(usize),
    /// The client on the first, the server on the second.
    Two(usize, usize),
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cores::Any => f.write_str("not pinned"),
            Cores::One(core) => write!(f, "client and server on core {core}"),
            Cores::Two(client, server) => write!(f, "client on core {client}, server on core {server}"),
        }
    }
}

/// The two sides of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Calls.
    Client,
    /// Is called.
    Server,
}

/// Cores and class of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The cores.
    pub cores: Cores,
    /// The class; inherited from the program if none is given.
    pub scheduling: Option<Scheduling>,
}

impl Placement {
    /// Both sides on the highest core that the process may use: the lower ones have most of the interrupts.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn one_core() -> io::Result<Self> {
        let last = thread::affinity(None)?.iter().last();
        Ok(Placement { cores: last.map_or(Cores::Any, Cores::One), scheduling: None })
    }

    /// Puts the calling thread on that side until the guard is dropped.
    ///
    /// # Errors
    /// The kernel refuses the cores or the class.
    pub fn enter(&self, side: Side) -> io::Result<Entered> {
        let entered = Entered { cores: thread::affinity(None)?, scheduling: thread::scheduling(None)? };
        if let Some(core) = self.core(side) {
            thread::set_affinity(None, &CpuSet::one(core))?;
        }
        if let Some(scheduling) = self.scheduling {
            thread::set_scheduling(None, scheduling)?;
        }
        Ok(entered)
    }

    /// Runs `body` on a thread of that side and waits for it.
    ///
    /// # Errors
    /// The kernel refuses the cores or the class, or `body` panicked.
    pub fn run<T: Send + 'static>(&self, side: Side, body: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let name = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        let mut builder = Builder::new().name(name);
        if let Some(core) = self.core(side) {
            builder = builder.affinity(CpuSet::one(core));
        }
        if let Some(scheduling) = self.scheduling {
            builder = builder.scheduling(scheduling);
        }
        builder.spawn(body)?.join().map_err(|_| io::Error::other(format!("the {name}'s thread panicked")))
    }

    /// Starts a program on that side: it inherits cores and class from the thread that starts it.
    ///
    /// # Errors
    /// As [`run`](Self::run), or the program cannot be started.
    pub fn start(&self, side: Side, mut command: Command) -> io::Result<Child> {
        self.run(side, move || command.spawn())?
    }

    fn core(&self, side: Side) -> Option<usize> {
        match (self.cores, side) {
            (Cores::Any, _) => None,
            (Cores::One(core), _) | (Cores::Two(core, _), Side::Client) | (Cores::Two(_, core), Side::Server) => {
                Some(core)
            }
        }
    }
}

/// A thread that is somewhere for a while; dropping this lets it go back.
#[derive(Debug)]
#[must_use = "the thread goes back at once"]
pub struct Entered {
    cores: CpuSet,
    scheduling: Scheduling,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Going back to what was in force needs no permission; where the machine lost a core meanwhile, nothing can be done.
        let _ = thread::set_scheduling(None, self.scheduling);
        let _ = thread::set_affinity(None, &self.cores);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn threads_and_programs_run_where_they_should() {
        let here = Placement::one_core().unwrap();
        let Cores::One(core) = here.cores else { panic!("no core to run on") };
        let set = here.run(Side::Client, || thread::affinity(None).unwrap()).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [core]);
        let before = thread::affinity(None).unwrap();
        let entered = here.enter(Side::Client).unwrap();
        assert_eq!(thread::affinity(None).unwrap().iter().collect::<Vec<_>>(), [core]);
        drop(entered);
        assert_eq!(thread::affinity(None).unwrap(), before);
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]).stdout(Stdio::piped());
        let child = here.start(Side::Server, command).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.trim(), format!("Cpus_allowed_list:\t{core}"));
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        let nowhere = Placement { cores: Cores::Two(1020, 1021), scheduling: None };
        assert_eq!(nowhere.run(Side::Server, || ()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(nowhere.start(Side::Client, Command::new("true")).is_err());
    }
}
