//! The builder of threads: name, stack, cores and scheduling class are set before a thread runs.

use std::any::Any;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::thread as std_thread;

use super::scheduling::{CpuSet, Scheduling, scheduling, set_affinity, set_scheduling};
use crate::memory;

/// The properties of a new thread. Cores and scheduling class that are not set are inherited from
/// the thread that starts it.
#[derive(Clone, Debug, Default)]
pub struct ThreadBuilder {
    name: Option<String>,
    stack: Option<usize>,
    affinity: Option<CpuSet>,
    preferred: Option<CpuSet>,
    scheduling: Option<Scheduling>,
    prefault: bool,
}

impl ThreadBuilder {
    /// Creates a builder whose threads inherit cores and scheduling class from the thread that
    /// starts them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name, for example `lane2/io`. The kernel stores its first 15 bytes.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the stack size in bytes, 2 MiB by default.
    #[must_use]
    pub fn stack_size(mut self, octets: usize) -> Self {
        self.stack = Some(octets);
        self
    }

    /// Restricts the thread to these cores.
    #[must_use]
    pub fn affinity(mut self, cores: CpuSet) -> Self {
        self.affinity = Some(cores);
        self
    }

    /// Sets the cores on which the thread runs if the system permits them (`None`: no preference).
    /// Otherwise the thread runs on the cores of the thread that starts it, and `spawn` reports no
    /// error.
    #[must_use]
    pub fn preferred_affinity(mut self, cores: Option<CpuSet>) -> Self {
        self.preferred = cores;
        self
    }

    /// Sets the scheduling class and priority.
    #[must_use]
    pub fn scheduling(mut self, scheduling: Scheduling) -> Self {
        self.scheduling = Some(scheduling);
        self
    }

    /// Makes the thread touch the first 128 KiB of its stack before it runs its body (see
    /// [`prefault_stack`]). The stack must be larger than 128 KiB.
    ///
    /// [`prefault_stack`]: crate::memory::prefault_stack
    #[must_use]
    pub fn prefault_stack(mut self, prefault: bool) -> Self {
        self.prefault = prefault;
        self
    }

    /// Starts the thread. `body` begins after affinity and scheduling have been set.
    ///
    /// # Errors
    /// `InvalidInput` for a name with NUL, and for cores or priorities that do not exist;
    /// `PermissionDenied` if the system refuses the scheduling class; another error if the process
    /// or the system has no resources for a thread. After an error the body has not run.
    pub fn spawn<T: Send + 'static>(self, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
        let thread = self.start(Box::new(move || Box::new(body())))?;
        Ok(JoinHandle { thread, result: PhantomData })
    }

    /// Starts the thread. Not generic, so that its code is compiled once for all bodies.
    fn start(self, body: Box<dyn FnOnce() -> BoxedResult + Send>) -> io::Result<InnerHandle> {
        let mut builder = std_thread::Builder::new();
        if let Some(name) = self.name {
            if name.contains('\0') {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "thread name contains NUL"));
            }
            builder = builder.name(name);
        }
        if let Some(stack) = self.stack {
            builder = builder.stack_size(stack);
        }
        let (affinity, preferred, scheduling) = (self.affinity, self.preferred, self.scheduling);
        let is_plain = affinity.is_none() && preferred.is_none() && scheduling.is_none();
        let is_prepared = Arc::new(OnceLock::new());
        let report = Arc::clone(&is_prepared);
        let thread = builder.spawn(move || {
            if let Some(cores) = preferred {
                let _ = set_affinity(None, &cores);
            }
            // A panic before the report would leave the spawning thread waiting for ever, so the
            // thread does nothing but set its properties before the report.
            let prepared = prepare(affinity, scheduling);
            let _ = report.set(prepared.is_ok());
            drop(report);
            prepared?;
            if self.prefault {
                memory::prefault_stack();
            }
            Ok(body())
        })?;
        if is_plain || *is_prepared.wait() {
            return Ok(thread);
        }
        match thread.join() {
            Ok(Err(error)) => Err(error),
            Ok(Ok(_)) | Err(_) => Err(io::Error::other("the system refused the scheduling or the cores of the thread")),
        }
    }
}

fn prepare(affinity: Option<CpuSet>, scheduling: Option<Scheduling>) -> io::Result<()> {
    if let Some(cores) = affinity {
        set_affinity(None, &cores)?;
    }
    // Inherited properties need no permission, so the thread does not set them again.
    if let Some(wanted) = scheduling
        && !matches!(self::scheduling(None), Ok(found) if found == wanted)
    {
        match set_scheduling(None, wanted) {
            // The system may forbid a thread of class SCHED_IDLE to leave this class, which is not
            // an error here.
            Err(error) if wanted == Scheduling::Other && error.kind() == io::ErrorKind::PermissionDenied => {}
            set => set?,
        }
    }
    Ok(())
}

/// Calls `start` with descending scheduling until it succeeds: the highest fixed priority, the
/// limit of the process (`RLIMIT_RTPRIO`) if there is one, and the ordinary class.
///
/// # Errors
/// The error of the last call of `start`.
pub fn start_at_highest_priority<T>(mut start: impl FnMut(Scheduling) -> io::Result<T>) -> io::Result<T> {
    let limit = memory::priority_limit().ok().flatten().and_then(|limit| u8::try_from(limit).ok());
    let highest =
        [Some(*Scheduling::FIXED_PRIORITIES.end()), limit.filter(|limit| Scheduling::FIXED_PRIORITIES.contains(limit))];
    for priority in highest.into_iter().flatten() {
        if let Ok(started) = start(Scheduling::Fifo(priority)) {
            return Ok(started);
        }
    }
    start(Scheduling::Other)
}

type BoxedResult = Box<dyn Any + Send>;
type InnerHandle = std_thread::JoinHandle<io::Result<BoxedResult>>;

/// A handle of a thread. The thread continues if the handle is dropped.
#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: InnerHandle,
    result: PhantomData<fn() -> T>,
}

impl<T: 'static> JoinHandle<T> {
    /// Waits for the end of the thread and returns the value of its body.
    ///
    /// # Errors
    /// The payload of the panic that ended the thread.
    pub fn join(self) -> std_thread::Result<T> {
        self.thread.join().map(|result| match result.map(|returned| returned.downcast()) {
            Ok(Ok(returned)) => *returned,
            Ok(Err(_)) | Err(_) => unreachable!("a handle of a thread that did not run its body"),
        })
    }

    /// Returns true if the body has ended, so that [`join`](Self::join) returns at once.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Returns the standard library's view of the thread: its name and identity, and a way to
    /// unpark it.
    pub fn thread(&self) -> &std_thread::Thread {
        self.thread.thread()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::scheduling::{affinity, current_core, current_tid};
    use super::*;

    #[test]
    fn thread_has_the_builder_settings() {
        let cores = affinity(None).unwrap();
        let last = cores.iter().last().unwrap();
        let thread = ThreadBuilder::new()
            .name("lane0/io")
            .stack_size(256 * 1024)
            .affinity(CpuSet::one(last))
            .spawn(move || {
                assert_eq!(std_thread::current().name(), Some("lane0/io"));
                assert_eq!(affinity(None).unwrap(), CpuSet::one(last));
                assert_eq!(current_core(), Some(last));
                current_tid()
            })
            .unwrap();
        assert_ne!(thread.join().unwrap(), current_tid());
        assert_eq!(affinity(None).unwrap(), cores);
    }

    #[test]
    fn refused_scheduling_is_reported_and_the_body_does_not_run() {
        let refused =
            ThreadBuilder::new().affinity(CpuSet::one(1023)).spawn(|| panic!("must not run")).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let refused = ThreadBuilder::new().scheduling(Scheduling::Fifo(0)).spawn(|| ()).unwrap_err();
        assert!(matches!(refused.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied));
    }

    #[test]
    fn fixed_priority_is_set_where_permitted() {
        match ThreadBuilder::new().scheduling(Scheduling::Fifo(3)).spawn(|| scheduling(None).unwrap()) {
            Ok(thread) => assert_eq!(thread.join().unwrap(), Scheduling::Fifo(3)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        assert_eq!(scheduling(None).unwrap(), Scheduling::Other);
    }

    #[test]
    fn missing_preferred_cores_are_ignored() {
        let own = affinity(None).unwrap();
        let last = CpuSet::one(own.iter().last().unwrap());
        for (preferred, expected) in [(None, own), (Some(last), last), (Some(CpuSet::one(1023)), own)] {
            let thread = ThreadBuilder::new().preferred_affinity(preferred).spawn(|| affinity(None).unwrap()).unwrap();
            assert_eq!(thread.join().unwrap(), expected);
        }
    }

    #[test]
    fn highest_priority_falls_back_to_the_ordinary_class() {
        let refused = |scheduling| match scheduling {
            Scheduling::Other => Ok(scheduling),
            _ => Err(io::ErrorKind::PermissionDenied.into()),
        };
        assert_eq!(start_at_highest_priority(refused).unwrap(), Scheduling::Other);
        assert_eq!(start_at_highest_priority(Ok).unwrap(), Scheduling::Fifo(99));
    }
}
