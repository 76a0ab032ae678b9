//! The client's side of admission: a task whose lease is renewed until its handle is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, io};

use corelane::minor::TASK_REFUSED;
use corelane::rt::{PeriodicJob, PeriodicTask, PeriodicTaskBuilder, PeriodicTaskStatistics};
use corelane::{Canceller, Completion, Reference, SystemException, SystemExceptionKind as Kind};
use corelane_sys::clock::Monotonic;
use corelane_sys::event_count::EventCount;
use corelane_sys::thread::{JoinHandle, Scheduling, ThreadBuilder};

use super::idl::cores::tasks::AdmitError;
use super::idl::cores::{Promise, TaskSpec, TaskTiming, TasksRef};

const PAUSE: Duration = Duration::from_millis(10);
const MAX_QUESTIONS: u32 = 1_000;
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_RENEWAL_PERIOD: Duration = Duration::from_millis(1);
const MAX_RENEWAL_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_RENEWAL_TIMEOUT: Duration = Duration::from_millis(100);

/// Requests the admission of a task. While the decision is pending, asks again after pauses of 10
/// ms, up to 1,000 times.
pub fn admit_task(tasks: &TasksRef, spec: &TaskSpec) -> Result<Promise, AdmitError> {
    let mut outcome = tasks.admit(spec);
    let mut questions = 0;
    while let Err(AdmitError::Pending(pending)) = &outcome {
        if questions == MAX_QUESTIONS {
            tasks.withdraw(pending.task, &pending.token)?;
            let exception = SystemException::new(Kind::Timeout, 0, Completion::No);
            return Err(exception.with_message("the server has not decided about the task").into());
        }
        questions += 1;
        std::thread::sleep(PAUSE);
        outcome = tasks.outcome(pending.task, &pending.token);
    }
    outcome
}

/// A task of this program that a server has admitted. A thread renews the lease.
///
/// Dropping the handle cancels a running renewal and withdraws the task. If the withdrawal fails,
/// the task ends with its lease. The drop takes at most 1 s for a renewal that is connecting to the
/// server, and at most 1 s for the withdrawal.
pub struct AdmittedTask<R> {
    promise: Promise,
    reference: R,
    timing: TaskTiming,
    name: String,
    starts_at: Monotonic,
    lease: Arc<Lease>,
    renewing: Option<JoinHandle<()>>,
}

impl<R> fmt::Debug for AdmittedTask<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("AdmittedTask");
        shown.field("name", &self.name).field("task", &self.promise.task).finish_non_exhaustive()
    }
}

struct Lease {
    tasks: TasksRef,
    renewals: TasksRef,
    canceller: Canceller,
    task: u64,
    token: [u8; 16],
    /// Length of the lease that the program asked for, in nanoseconds; 0 for the server's default.
    requested: u64,
    must_stop: AtomicBool,
    stop: EventCount,
    /// True after the server has answered a renewal with OBJECT_NOT_EXIST, NO_PERMISSION or
    /// `TASK_REFUSED`.
    has_lapsed: AtomicBool,
}

impl Lease {
    /// Renews the lease after each third of its length, but not more often than every millisecond.
    /// Returns when the task ends or the server has answered with OBJECT_NOT_EXIST, NO_PERMISSION
    /// or `TASK_REFUSED`.
    fn keep(&self, mut length: Duration) {
        let must_stop = || self.must_stop.load(Ordering::Acquire).then_some(());
        let mut begun = Monotonic::now();
        loop {
            let period = (length / 3).max(MIN_RENEWAL_PERIOD);
            if self.stop.wait(Some(begun + period), must_stop).is_some() {
                return;
            }
            begun = Monotonic::now();
            // The time-out of a renewal leaves time for a further renewal within the lease.
            let timeout = (period / 2).clamp(MIN_RENEWAL_TIMEOUT, MAX_RENEWAL_TIMEOUT);
            match self.renewals.with_timeout(timeout).renew(self.task, &self.token, self.requested) {
                Ok(renewed) => length = Duration::from_nanos(renewed),
                Err(exception)
                    if matches!(exception.kind(), Kind::ObjectNotExist | Kind::NoPermission)
                        || (exception.kind(), exception.minor()) == (Kind::NoResources, TASK_REFUSED) =>
                {
                    self.has_lapsed.store(true, Ordering::Release);
                    return;
                }
                Err(_) => {}
            }
        }
    }
}

impl<R: Reference + Send + 'static> AdmittedTask<R> {
    /// Requests the admission of a task whose requests call `target`, and waits for the decision
    /// ([`admit_task`]). `target` replaces the target in `spec`.
    ///
    /// # Errors
    /// The errors of [`admit_task`]. NO_RESOURCES if the process has no descriptor or thread for
    /// the renewal of the lease. Without a thread, the admitted task is withdrawn.
    pub fn admit(tasks: &TasksRef, target: &R, spec: &TaskSpec) -> Result<Self, AdmitError> {
        let no_resources = |error: io::Error| {
            SystemException::new(Kind::NoResources, 0, Completion::No).with_message(error.to_string())
        };
        let spec = TaskSpec { target: Some(target.as_object().clone()), ..spec.clone() };
        let canceller = Canceller::new().map_err(no_resources)?;
        let promise = admit_task(tasks, &spec)?;
        let starts_at = Monotonic::now() + Duration::from_nanos(promise.start);
        let lease = Arc::new(Lease {
            tasks: tasks.clone(),
            renewals: tasks.with_canceller(&canceller),
            canceller,
            task: promise.task,
            token: promise.token,
            requested: spec.lease,
            must_stop: AtomicBool::new(false),
            stop: EventCount::new("cores lease"),
            has_lapsed: AtomicBool::new(false),
        });
        let reference = match &promise.target {
            Some(object) => R::from_object(object.clone()),
            None => target.clone(),
        };
        let (keeper, length) = (Arc::clone(&lease), Duration::from_nanos(promise.lease));
        let (timing, name) = (spec.timing, spec.name);
        let mut admitted = AdmittedTask { promise, reference, timing, name, starts_at, lease, renewing: None };
        // A renewal in a real-time class could delay the jobs, so the thread has the ordinary
        // class.
        let thread = ThreadBuilder::new().name("cores/lease").stack_size(256 * 1024).scheduling(Scheduling::Other);
        let thread = thread.spawn(move || keeper.keep(length)).map_err(no_resources)?;
        admitted.renewing = Some(thread);
        Ok(admitted)
    }

    /// Returns the reference through which the program calls the task's object.
    #[must_use]
    pub fn reference(&self) -> &R {
        &self.reference
    }

    /// Returns the server's promise at the time of the admission.
    #[must_use]
    pub fn promise(&self) -> &Promise {
        &self.promise
    }

    /// Returns true if the server has refused a renewal with OBJECT_NOT_EXIST or NO_PERMISSION, for
    /// example because the lease ended while the server could not be reached. Requests to the task
    /// reference then fail, usually with TRANSIENT.
    ///
    /// Also returns true if the server has refused a renewal with NO_RESOURCES and the minor code
    /// [`TASK_REFUSED`], because its kernel has refused the task's core or priority.
    /// Requests to the task reference are then best effort, and fail after the end of the lease,
    /// which is not renewed any more.
    #[must_use]
    pub fn has_lapsed(&self) -> bool {
        self.lease.has_lapsed.load(Ordering::Acquire)
    }

    /// Returns options of a periodic task with the name, the period and the deadline of this task.
    /// The first release is not before the promise begins.
    pub fn periodic(&self) -> PeriodicTaskBuilder {
        let TaskTiming { period, deadline, .. } = self.timing;
        let deadline = if deadline == 0 { period } else { deadline };
        PeriodicTaskBuilder::new(Duration::from_nanos(period))
            .name(self.name.clone())
            .deadline(Duration::from_nanos(deadline))
            .start_delay(self.starts_at.remaining())
    }

    /// Starts a periodic task that calls the task reference, with options from
    /// [`periodic`](Self::periodic).
    ///
    /// # Errors
    /// The errors of [`PeriodicTaskBuilder::start`]. The task is then withdrawn.
    pub fn start<F>(self, builder: PeriodicTaskBuilder, job: F) -> Result<AdmittedPeriodicTask<R>, SystemException>
    where
        F: FnMut(&R, &PeriodicJob) -> Result<(), SystemException> + Send + 'static,
    {
        let task = builder.start(&self.reference, job)?;
        Ok(AdmittedPeriodicTask { task, admitted: self })
    }

    /// Withdraws the task.
    ///
    /// # Errors
    /// The errors of the call, for example OBJECT_NOT_EXIST if the task has already ended.
    pub fn withdraw(mut self) -> Result<(), SystemException> {
        self.end_renewal();
        self.lease.tasks.withdraw(self.lease.task, &self.lease.token)
    }
}

impl<R> AdmittedTask<R> {
    /// Ends and joins the thread that renews the lease. Returns false if it was joined before or
    /// never started.
    fn end_renewal(&mut self) -> bool {
        let Some(renewing) = self.renewing.take() else { return false };
        self.lease.must_stop.store(true, Ordering::Release);
        self.lease.stop.notify_all();
        self.lease.canceller.cancel();
        let _ = renewing.join();
        true
    }
}

impl<R> Drop for AdmittedTask<R> {
    fn drop(&mut self) {
        if self.end_renewal() || !self.lease.must_stop.load(Ordering::Acquire) {
            let _ = self.lease.tasks.with_timeout(WITHDRAW_TIMEOUT).withdraw(self.lease.task, &self.lease.token);
        }
    }
}

/// A running periodic task that a server has admitted. Dropping it stops the task, and then
/// withdraws it.
pub struct AdmittedPeriodicTask<R> {
    // The fields are dropped in this order: the task stops before it is withdrawn.
    task: PeriodicTask,
    admitted: AdmittedTask<R>,
}

impl<R> fmt::Debug for AdmittedPeriodicTask<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmittedPeriodicTask").field("admitted", &self.admitted).finish_non_exhaustive()
    }
}

impl<R: Reference + Send + 'static> AdmittedPeriodicTask<R> {
    /// Returns the running periodic task.
    #[must_use]
    pub fn task(&self) -> &PeriodicTask {
        &self.task
    }

    /// Returns the admitted task.
    #[must_use]
    pub fn admitted(&self) -> &AdmittedTask<R> {
        &self.admitted
    }

    /// Stops the task ([`PeriodicTask::stop`]), withdraws it, and returns the statistics. A failure
    /// of the withdrawal is not reported.
    pub fn stop(self) -> PeriodicTaskStatistics {
        self.task.stop()
    }

    /// Waits for the end of a task with a maximum number of jobs ([`PeriodicTask::wait`]),
    /// withdraws it, and returns the statistics.
    pub fn wait(self) -> PeriodicTaskStatistics {
        self.task.wait()
    }
}
