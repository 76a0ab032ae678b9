//! Tasks of a lane that no descriptor reports: connections to read further, and requests that were
//! parked, handed over or buffered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane_sys::lock::{LockScope, PiMutex};

use super::admission;
use super::connection::{Connection, WaitingRequest};
use super::message::Message;
use super::parked_request::ParkedRequest;

/// Maximum number of tasks in the list of a lane that still accepts requests of other lanes.
/// Further requests are answered with TRANSIENT 1.
const MAX_HANDED_OVER: usize = 1024;

/// A task that no descriptor reports.
#[derive(Debug)]
pub(crate) enum LaneTask {
    /// Read this connection. The connection knows the cause, and is listed at most once.
    Read((u32, u32)),
    /// Handle the report of this connection's stream, which has no descriptor.
    PollStream(Arc<Connection>),
    /// Close connections, because they hold more memory than the lane's budget.
    ShedMemory,
    /// Run a message that had to wait.
    Dispatch(WaitingRequest, Message),
    /// Run a collocated call, which one of the lane's threads executes for the caller.
    RunLocal(ParkedRequest),
    /// Run a request that the overload thread has read and buffered.
    DispatchBuffered {
        /// Requests with a higher priority run first.
        priority: i16,
        waiting: WaitingRequest,
        message: Message,
        bytes: u64,
    },
}

impl LaneTask {
    /// Returns true if the task runs a request.
    fn is_request(&self) -> bool {
        !matches!(self, LaneTask::Read(_) | LaneTask::PollStream(_) | LaneTask::ShedMemory)
    }

    /// Returns the size in bytes of a request that was handed over or parked, and 0 for other
    /// tasks. The list counts buffered requests separately.
    fn bytes(&self) -> usize {
        match self {
            LaneTask::Dispatch(_, message) => message.bytes(),
            LaneTask::RunLocal(held) => held.bytes,
            _ => 0,
        }
    }
}

/// The tasks of a lane. Threads of other priorities list requests here, so the lock has priority
/// inheritance.
#[derive(Debug)]
pub(super) struct ReadyList {
    list: PiMutex<TaskList>,
    /// Number of tasks, written under the lock. If it is 0, a thread need not take the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct TaskList {
    tasks: VecDeque<LaneTask>,
    /// Number of buffered requests. `buffered_bytes` is their size.
    buffered: u32,
    buffered_bytes: u64,
    /// Size in bytes of the requests that were handed over or parked.
    handed_over_bytes: usize,
    /// True when the lane has stopped. No thread takes tasks after that.
    stopped: bool,
}

impl TaskList {
    fn insert(&mut self, index: usize, work: LaneTask) {
        if let LaneTask::DispatchBuffered { bytes, .. } = &work {
            self.buffered += 1;
            self.buffered_bytes += bytes;
        }
        self.handed_over_bytes += work.bytes();
        self.tasks.insert(index, work);
    }

    fn remove(&mut self, index: usize) -> Option<LaneTask> {
        let work = self.tasks.remove(index)?;
        if let LaneTask::DispatchBuffered { bytes, .. } = &work {
            self.buffered -= 1;
            self.buffered_bytes -= bytes;
        }
        self.handed_over_bytes -= work.bytes();
        Some(work)
    }
}

impl ReadyList {
    pub(super) fn new() -> Self {
        ReadyList { list: PiMutex::new("ready list", LockScope::Lane, TaskList::default()), count: AtomicUsize::new(0) }
    }

    /// Returns true if a task is listed.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    fn update<R>(&self, update: impl FnOnce(&mut TaskList) -> R) -> R {
        let mut list = self.list.lock();
        let result = update(&mut list);
        self.count.store(list.tasks.len(), Ordering::SeqCst);
        result
    }

    /// Lists a task, unless the lane has stopped.
    pub(super) fn push(&self, work: LaneTask) {
        self.push_if(work, |_| true);
    }

    /// Lists a request that arrived at another lane. Returns false if too many tasks are listed, if
    /// the listed requests would have more than `max_bytes`, or if the lane has stopped.
    pub(super) fn hand_over(&self, work: LaneTask, max_bytes: usize) -> bool {
        let bytes = work.bytes();
        self.push_if(work, |list| {
            list.tasks.len() < MAX_HANDED_OVER && admission::bytes_fit(list.handed_over_bytes, bytes, max_bytes)
        })
    }

    fn push_if(&self, work: LaneTask, has_room: impl FnOnce(&TaskList) -> bool) -> bool {
        let refused = self.update(|list| {
            if list.stopped || !has_room(list) {
                return Some(work);
            }
            list.insert(list.tasks.len(), work);
            None
        });
        // A refused request is dropped after the lock is released, because its drop may list its
        // connection for reading.
        refused.is_none()
    }

    /// Lists a request that the overload thread has read, after all requests of the same or a
    /// higher priority.
    pub(super) fn buffer(&self, priority: i16, waiting: WaitingRequest, message: Message, bytes: u64) {
        self.update(|list| {
            let is_less =
                |work: &LaneTask| matches!(work, LaneTask::DispatchBuffered { priority: other, .. } if *other < priority);
            let at = list.tasks.iter().position(is_less).unwrap_or(list.tasks.len());
            list.insert(at, LaneTask::DispatchBuffered { priority, waiting, message, bytes });
        });
    }

    /// Puts a request that was taken but did not run back at the front of the list.
    #[cold]
    pub(super) fn push_front(&self, work: Option<LaneTask>) {
        self.update(|list| work.into_iter().for_each(|work| list.insert(0, work)));
    }

    /// Takes the first task. Also returns true if more tasks are listed.
    pub(super) fn next(&self) -> (Option<LaneTask>, bool) {
        self.update(|list| (list.remove(0), !list.tasks.is_empty()))
    }

    fn take_first(&self, wanted: impl Fn(&LaneTask) -> bool) -> Option<LaneTask> {
        self.update(|list| list.tasks.iter().position(wanted).and_then(|index| list.remove(index)))
    }

    /// Takes the oldest request.
    pub(super) fn take_request(&self) -> Option<LaneTask> {
        self.take_first(LaneTask::is_request)
    }

    /// Takes the oldest task that is not a request.
    pub(super) fn take_read(&self) -> Option<LaneTask> {
        self.take_first(|work| !work.is_request())
    }

    /// Returns true if a request is listed.
    pub(super) fn has_request(&self) -> bool {
        self.has_any() && self.list.lock().tasks.iter().any(LaneTask::is_request)
    }

    /// Returns the number of buffered requests, and their size in bytes.
    pub(super) fn buffered(&self) -> (u32, u64) {
        let list = self.list.lock();
        (list.buffered, list.buffered_bytes)
    }

    /// Takes all tasks, and accepts no more. The caller of a collocated call learns that the lane
    /// has stopped when the task of the call is dropped.
    pub(super) fn stop(&self) -> VecDeque<LaneTask> {
        self.update(|list| std::mem::replace(list, TaskList { stopped: true, ..TaskList::default() }).tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: usize) -> LaneTask {
        LaneTask::RunLocal(ParkedRequest { bytes, resume: Box::new(|_| {}) })
    }

    #[test]
    fn handed_over_requests_are_bounded_by_number_and_bytes() {
        let list = ReadyList::new();
        assert!(list.hand_over(held(90), 100) && list.hand_over(held(10), 100));
        assert!(!list.hand_over(held(1), 100));
        assert!(list.next().0.is_some() && list.hand_over(held(90), 100));
        assert!((2..MAX_HANDED_OVER).all(|_| list.hand_over(held(0), 100)));
        assert!(!list.hand_over(held(0), 100));
        assert_eq!(list.stop().len(), MAX_HANDED_OVER);
        assert!(!list.hand_over(held(0), 100) && !list.has_any());
        list.push(held(0));
        assert!(!list.has_any(), "no thread takes tasks from a stopped list");
    }
}
