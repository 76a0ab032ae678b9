//! Periodic tasks of clients: a thread that runs a job at each release.

mod jobs;

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane_sched::release::OverrunRule;
use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::poll;
use corelane_sys::thread::{CpuSet, JoinHandle, Scheduling, ThreadBuilder};

use self::jobs::{JobPlan, TaskClock, run_jobs};
pub use self::jobs::{PeriodicJob, PeriodicOverrun, PeriodicTaskStatistics};
use super::pool::{bad_param, no_resources};
use crate::cancel::Canceller;
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::Reference;
use crate::orb_context::panic_text;

/// Minimum stack size in bytes of a task's thread.
const MIN_STACK_SIZE: usize = 256 * 1024;

type OverrunHandler = Box<dyn FnMut(&PeriodicOverrun) -> OverrunRule + Send>;

/// The options of a [`PeriodicTask`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelane::Orb;
/// use corelane::rt::{OverrunRule, PeriodicTaskBuilder};
/// let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
/// # orb.root_poa().manager().activate()?;
/// # let object = orb.root_poa().create_reference("IDL:corelane.test/Sensor:1.0")?;
/// let task = PeriodicTaskBuilder::new(Duration::from_millis(5))
///     .name("sensor")
///     .deadline(Duration::from_millis(4))
///     .overrun_rule(OverrunRule::CatchUp { max_backlog: 3 })
///     .max_jobs(2)
///     // A job calls the object, for example `sensor.report(value)`.
///     .start(&object, |object, job| { let _ = (object, job.remaining()); Ok(()) })?;
/// let statistics = task.wait();
/// assert_eq!((statistics.started, statistics.completed), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct PeriodicTaskBuilder {
    name: String,
    period: Duration,
    deadline: Option<Duration>,
    start_delay: Duration,
    max_jobs: u64,
    overrun_rule: OverrunRule,
    overrun_handler: Option<OverrunHandler>,
    scheduling: Option<Scheduling>,
    cores: Option<CpuSet>,
    thread_stack_size: usize,
    private_connection: bool,
}

impl fmt::Debug for PeriodicTaskBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PeriodicTaskBuilder");
        shown.field("name", &self.name).field("period", &self.period).finish_non_exhaustive()
    }
}

impl PeriodicTaskBuilder {
    /// Creates the options of a task whose jobs are released once a period.
    pub fn new(period: Duration) -> Self {
        PeriodicTaskBuilder {
            name: "periodic".to_owned(),
            period,
            deadline: None,
            start_delay: Duration::ZERO,
            max_jobs: u64::MAX,
            overrun_rule: OverrunRule::default(),
            overrun_handler: None,
            scheduling: None,
            cores: None,
            thread_stack_size: 1 << 20,
            private_connection: true,
        }
    }

    /// Sets the name of the task's thread, of which the kernel keeps 15 bytes. Default: `periodic`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the time from a release to the deadline of its job, which may exceed the period. The
    /// statistics count the jobs that end later. Default: the period.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the time to the first release. This time begins when the task's thread has connected to
    /// the object, or has failed to connect. Default: zero.
    pub fn start_delay(mut self, delay: Duration) -> Self {
        self.start_delay = delay;
        self
    }

    /// Sets the number of jobs after which the task ends. Default: no end.
    pub fn max_jobs(mut self, jobs: u64) -> Self {
        self.max_jobs = jobs;
        self
    }

    /// Sets which releases get a job after a job that ended later than the next release. Default:
    /// [`OverrunRule::SkipMissed`].
    pub fn overrun_rule(mut self, rule: OverrunRule) -> Self {
        self.overrun_rule = rule;
        self
    }

    /// Sets a function that the task's thread calls after each overrun. The function returns the
    /// rule for this overrun, and replaces [`overrun_rule`](Self::overrun_rule).
    pub fn on_overrun(mut self, handler: impl FnMut(&PeriodicOverrun) -> OverrunRule + Send + 'static) -> Self {
        self.overrun_handler = Some(Box::new(handler));
        self
    }

    /// Sets the scheduling class and the native priority of the task's thread. Default: the class
    /// and priority of the thread that calls [`start`](Self::start).
    pub fn scheduling(mut self, scheduling: Scheduling) -> Self {
        self.scheduling = Some(scheduling);
        self
    }

    /// Sets the cores of the task's thread. Default: the cores of the thread that calls
    /// [`start`](Self::start).
    pub fn cores(mut self, cores: CpuSet) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Sets the stack size of the task's thread in bytes, at least 256 KiB. Default: 1 MiB.
    pub fn thread_stack_size(mut self, size: usize) -> Self {
        self.thread_stack_size = size;
        self
    }

    /// Sets whether the task's calls have connections of their own
    /// ([`RtClientPolicies::private_connection`](super::RtClientPolicies::private_connection)). If
    /// false, the policies of the reference, of the thread and of the ORB decide. Default: true.
    pub fn private_connection(mut self, is_private: bool) -> Self {
        self.private_connection = is_private;
        self
    }

    /// Starts the task. `job` runs once for each release that gets a job, with a copy of `target`
    /// whose calls end when the task is stopped.
    ///
    /// The thread connects to the object before the first release, so the first job does not wait
    /// for the connection. If the connection fails, the jobs' calls raise the exceptions.
    ///
    /// # Errors
    /// BAD_PARAM for a period of zero, a stack that is too small, and a core or priority that does
    /// not exist; NO_PERMISSION if the kernel refuses the scheduling; NO_RESOURCES if the process
    /// has no descriptor or thread left, or the kernel has no processor time left for a
    /// reservation.
    pub fn start<R, F>(mut self, target: &R, mut job: F) -> Result<PeriodicTask, SystemException>
    where
        R: Reference + Send + 'static,
        F: FnMut(&R, &PeriodicJob) -> Result<(), SystemException> + Send + 'static,
    {
        if self.period.is_zero() {
            return Err(bad_param("the period of a task must not be zero"));
        }
        if self.thread_stack_size < MIN_STACK_SIZE {
            return Err(bad_param("the stack of a task's thread must have at least 256 KiB"));
        }
        let canceller = Canceller::new().map_err(|error| no_resources(error.to_string()))?;
        let mut object = target.as_object().with_canceller(&canceller);
        if self.private_connection {
            object = object.with_private_connection();
        }
        let locks_memory = object.client().config().locks_memory;
        let (object, typed) = (object.clone(), R::from_object(object));
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (period, delay) = (nanos(self.period), nanos(self.start_delay));
        let (deadline, max_jobs) = (self.deadline.map_or(period, nanos), self.max_jobs);
        let shared = Arc::new(SharedTask {
            must_stop: AtomicBool::new(false),
            stop: EventCount::new("periodic task"),
            statistics: PiMutex::new("periodic task", LockScope::Connection, PeriodicTaskStatistics::default()),
            canceller,
        });
        let (own, rule) = (Arc::clone(&shared), self.overrun_rule);
        let name = std::mem::take(&mut self.name);
        let mut builder =
            ThreadBuilder::new().name(name.clone()).stack_size(self.thread_stack_size).prefault_stack(locks_memory);
        if let Some(cores) = self.cores {
            builder = builder.affinity(cores);
        }
        if let Some(scheduling) = self.scheduling {
            builder = builder.scheduling(scheduling);
        }
        let mut handler = self.overrun_handler;
        let body = move || {
            // Waits of threads in the ordinary class end at their time, instead of up to 50 us
            // later.
            poll::minimize_timer_slack();
            let _ = object.validate_connection();
            let first_release_at = own.now().saturating_add(delay);
            let plan = JobPlan { first_release_at, period, deadline, max_jobs };
            let mut run = |started: &PeriodicJob| job(&typed, started).is_ok();
            let mut overrun_rule =
                |overrun: &PeriodicOverrun| handler.as_mut().map_or(rule, |handler| handler(overrun));
            let jobs = || run_jobs(&plan, &*own, &own.statistics, &mut run, &mut overrun_rule);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(jobs)) {
                {
                    let mut statistics = own.statistics.lock();
                    statistics.has_panicked = true;
                    statistics.failed = statistics.started - statistics.completed;
                }
                let message = format!("{name}: a function of the task panicked: {}", panic_text(&*panic));
                object.client().events().report(&Event::ThreadFailed { message });
            }
        };
        let thread = builder.spawn(body).map_err(|error| refused(&error))?;
        Ok(PeriodicTask { shared, thread: Some(thread) })
    }
}

fn refused(error: &io::Error) -> SystemException {
    let kind = match error.kind() {
        io::ErrorKind::InvalidInput => Kind::BadParam,
        io::ErrorKind::PermissionDenied => Kind::NoPermission,
        _ => Kind::NoResources,
    };
    SystemException::new(kind, 0, Completion::No).with_message(format!("the thread of the task: {error}"))
}

struct SharedTask {
    must_stop: AtomicBool,
    stop: EventCount,
    statistics: PiMutex<PeriodicTaskStatistics>,
    canceller: Canceller,
}

impl TaskClock for SharedTask {
    fn now(&self) -> u64 {
        Monotonic::now().as_nanos()
    }

    /// Waits until the time `at`. The kernel gets this absolute time, so a preemption before the
    /// wait does not make it longer.
    fn wait_until(&self, at: u64) -> bool {
        let at = Monotonic::from_nanos(at);
        let must_stop = || self.must_stop.load(Ordering::Acquire).then_some(());
        if at.is_past() {
            return must_stop().is_none();
        }
        self.stop.wait(Some(at), must_stop).is_none()
    }
}

/// A running periodic task: a thread that calls an object once a period.
///
/// Release times are absolute times of the monotonic clock, at multiples of the period after the
/// first release, so delays do not add up.
///
/// Dropping the task [stops](Self::stop) it.
pub struct PeriodicTask {
    shared: Arc<SharedTask>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for PeriodicTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeriodicTask").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}

impl PeriodicTask {
    /// Returns the statistics so far. The task's thread may wait while the caller copies them. The
    /// caller then runs at the priority of the thread (priority inheritance).
    #[must_use]
    pub fn statistics(&self) -> PeriodicTaskStatistics {
        self.shared.statistics.lock().clone()
    }

    /// Returns true if the task's thread has ended: after the last job of
    /// [`max_jobs`](PeriodicTaskBuilder::max_jobs), or after a panic of a job or of the overrun
    /// function.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the task, waits for the end of its thread, and returns the statistics.
    ///
    /// A thread that waits for a release ends at once. The calls of a running job raise TRANSIENT 3
    /// at once, but a call that connects ends at its time-out. Other work of a running job
    /// continues until the job returns.
    pub fn stop(mut self) -> PeriodicTaskStatistics {
        self.request_stop();
        self.join()
    }

    /// Waits for the end of a task with [`max_jobs`](PeriodicTaskBuilder::max_jobs), and returns
    /// the statistics. Without a maximum the task ends only by a panic.
    pub fn wait(mut self) -> PeriodicTaskStatistics {
        self.join()
    }

    fn request_stop(&self) {
        self.shared.must_stop.store(true, Ordering::Release);
        self.shared.stop.notify_all();
        self.shared.canceller.cancel();
    }

    fn join(&mut self) -> PeriodicTaskStatistics {
        if let Some(thread) = self.thread.take() {
            // An error means that a thread-local destructor of the program panicked. The panic hook
            // has reported the panic.
            let _ = thread.join();
        }
        self.statistics()
    }
}

impl Drop for PeriodicTask {
    fn drop(&mut self) {
        let Some(thread) = &self.thread else { return };
        // A job that drops its own task cannot wait for the end of its thread, so it only requests
        // the stop.
        let is_own_thread = thread.thread().id() == std::thread::current().id();
        self.request_stop();
        if !is_own_thread {
            self.join();
        }
    }
}
