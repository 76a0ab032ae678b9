//! Placement of clients and servers on cores and in scheduling classes.

use std::fmt;
use std::io;
use std::process::{Child, Command};

use corelane_sys::thread::{self, CpuSet, Scheduling, ThreadBuilder};

use crate::orb::levels::LEVELS;

/// The cores to which client and server are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CoreChoice {
    /// No binding: the kernel chooses the cores.
    #[default]
    Any,
    /// Both sides on this core.
    Shared(usize),
    /// The client on the first core and the server on the second.
    Separate(usize, usize),
}

impl fmt::Display for CoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoreChoice::Any => f.write_str("not pinned"),
            CoreChoice::Shared(core) => write!(f, "client and server on core {core}"),
            CoreChoice::Separate(client, server) => write!(f, "client on core {client}, server on core {server}"),
        }
    }
}

/// The side of a call to which a thread or a program belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The calling side.
    Client,
    /// The called side.
    Server,
}

/// The cores and the scheduling class of both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Cores to which the sides are bound.
    pub cores: CoreChoice,
    /// Scheduling class of both sides. `None` means the scheduling class of the calling thread.
    pub scheduling: Option<Scheduling>,
}

impl Placement {
    /// Places both sides on the highest core that the process may use.
    ///
    /// # Errors
    /// The kernel does not report the cores.
    pub fn one_core() -> io::Result<Self> {
        let last = thread::affinity(None)?.iter().last();
        Ok(Placement { cores: last.map_or(CoreChoice::Any, CoreChoice::Shared), scheduling: None })
    }

    /// Moves the calling thread to the cores and class of a side until the guard is dropped.
    ///
    /// # Errors
    /// The kernel refuses the cores or the class.
    pub fn enter(&self, side: Side) -> io::Result<PlacementGuard> {
        let entered = PlacementGuard { cores: thread::affinity(None)?, scheduling: thread::scheduling(None)? };
        if let Some(core) = self.core(side) {
            thread::set_affinity(None, &CpuSet::one(core))?;
        }
        if let Some(scheduling) = self.scheduling {
            thread::set_scheduling(None, scheduling)?;
        }
        Ok(entered)
    }

    /// Runs `body` on a new thread of a side and waits for its end.
    ///
    /// # Errors
    /// The thread cannot be created, the kernel refuses the cores or the class, or `body` panicked.
    pub fn run<T: Send + 'static>(&self, side: Side, body: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let name = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        let mut builder = ThreadBuilder::new().name(name);
        if let Some(core) = self.core(side) {
            builder = builder.affinity(CpuSet::one(core));
        }
        if let Some(scheduling) = self.scheduling {
            builder = builder.scheduling(scheduling);
        }
        builder.spawn(body)?.join().map_err(|_| io::Error::other(format!("the {name}'s thread panicked")))
    }

    /// Starts a program on a side. The program inherits cores and class from the thread that starts
    /// it.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run), and an error if the program cannot be started.
    pub fn start(&self, side: Side, mut command: Command) -> io::Result<Child> {
        self.run(side, move || command.spawn())?
    }

    pub(crate) fn core(&self, side: Side) -> Option<usize> {
        match (self.cores, side) {
            (CoreChoice::Any, _) => None,
            (CoreChoice::Shared(core), _)
            | (CoreChoice::Separate(core, _), Side::Client)
            | (CoreChoice::Separate(_, core), Side::Server) => Some(core),
        }
    }
}

/// A temporary placement of the calling thread. Dropping it restores the thread's previous cores
/// and class.
#[derive(Debug)]
#[must_use = "the thread leaves the placement at once"]
pub struct PlacementGuard {
    cores: CpuSet,
    scheduling: Scheduling,
}

impl Drop for PlacementGuard {
    fn drop(&mut self) {
        // Errors are ignored, because a drop cannot report them.
        let _ = thread::set_scheduling(None, self.scheduling);
        let _ = thread::set_affinity(None, &self.cores);
    }
}

pub(crate) fn permits_fixed_priorities() -> bool {
    ThreadBuilder::new().scheduling(Scheduling::Fifo(LEVELS)).spawn(|| ()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn threads_and_programs_run_in_their_placement() {
        let here = Placement::one_core().unwrap();
        let CoreChoice::Shared(core) = here.cores else { panic!("no core to run on") };
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
    fn placement_on_a_missing_core_is_refused() {
        let nowhere = Placement { cores: CoreChoice::Separate(1020, 1021), scheduling: None };
        assert_eq!(nowhere.run(Side::Server, || ()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(nowhere.start(Side::Client, Command::new("true")).is_err());
    }
}
