//! The ready list of a lane: tasks that epoll does not report.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane_sys::lock::{LockScope, PiMutex};

use super::admission;
use super::connection::{Connection, WaitingRequest};
use super::message::Message;
use super::parked_request::ParkedRequest;

/// Number of tasks in the list at which further requests that other lanes hand over are refused
/// with TRANSIENT 1.
const MAX_HANDED_OVER: usize = 1024;

#[derive(Debug)]
pub(crate) enum LaneTask {
    /// Reads a connection. [`Connection::take_listing`] returns the cause of reading.
    Read((u32, u32)),
    PollStream(Arc<Connection>),
    ShedMemory,
    Dispatch(WaitingRequest, Message),
    RunCollocated(ParkedRequest),
    DispatchBuffered {
        priority: i16,
        waiting: WaitingRequest,
        message: Message,
        bytes: u64,
    },
}

impl LaneTask {
    fn is_request(&self) -> bool {
        !matches!(self, LaneTask::Read(_) | LaneTask::PollStream(_) | LaneTask::ShedMemory)
    }

    /// Returns the size in bytes of a request, which counts in `handed_over_bytes`. Returns 0 for
    /// other tasks, and for a buffered request, which the list counts separately.
    fn bytes(&self) -> usize {
        match self {
            LaneTask::Dispatch(_, message) => message.bytes(),
            LaneTask::RunCollocated(held) => held.bytes,
            _ => 0,
        }
    }
}

/// The tasks of a lane that wait for a thread.
///
/// The mutex has priority inheritance, because threads of lanes with other priorities add requests.
#[derive(Debug)]
pub(super) struct ReadyList {
    list: PiMutex<TaskList>,
    /// Number of tasks, plus [`BEGUN`] times the number of connections with a begun reply. While it
    /// is 0, a thread need not take the lock. Changed `SeqCst`, loaded `Acquire`.
    count: AtomicUsize,
}

const BEGUN: usize = 1 << (usize::BITS / 2);

#[derive(Debug, Default)]
struct TaskList {
    tasks: VecDeque<LaneTask>,
    buffered: u32,
    buffered_bytes: u64,
    handed_over_bytes: usize,
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

    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) & (BEGUN - 1) > 0
    }

    #[inline]
    pub(super) fn has_any_or_begun(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    #[cfg(feature = "replies-first")]
    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        self.count.load(Ordering::Acquire) >= BEGUN
    }

    pub(super) fn count_begun(&self, begins: bool) {
        let change = if begins { BEGUN } else { BEGUN.wrapping_neg() };
        self.count.fetch_add(change, Ordering::SeqCst);
    }

    fn update<R>(&self, update: impl FnOnce(&mut TaskList) -> R) -> R {
        let mut list = self.list.lock();
        let before = list.tasks.len();
        let result = update(&mut list);
        self.count.fetch_add(list.tasks.len().wrapping_sub(before), Ordering::SeqCst);
        result
    }

    pub(super) fn push(&self, work: LaneTask) {
        self.push_if(work, |_| true);
    }

    /// Adds a request of another lane. Returns false if too many tasks or bytes are on the list, or
    /// if the lane has stopped.
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
        // A refused request is dropped here, without the lock, because its drop may put its
        // connection on the list.
        refused.is_none()
    }

    /// Adds the request before the first buffered request with a lower priority, or at the end.
    pub(super) fn buffer(&self, priority: i16, waiting: WaitingRequest, message: Message, bytes: u64) {
        self.update(|list| {
            let is_less =
                |work: &LaneTask| matches!(work, LaneTask::DispatchBuffered { priority: other, .. } if *other < priority);
            let at = list.tasks.iter().position(is_less).unwrap_or(list.tasks.len());
            list.insert(at, LaneTask::DispatchBuffered { priority, waiting, message, bytes });
        });
    }

    #[cold]
    pub(super) fn push_front(&self, work: Option<LaneTask>) {
        self.update(|list| work.into_iter().for_each(|work| list.insert(0, work)));
    }

    pub(super) fn next(&self) -> (Option<LaneTask>, bool) {
        self.update(|list| (list.remove(0), !list.tasks.is_empty()))
    }

    fn take_first(&self, wanted: impl Fn(&LaneTask) -> bool) -> Option<LaneTask> {
        self.update(|list| list.tasks.iter().position(wanted).and_then(|index| list.remove(index)))
    }

    pub(super) fn take_request(&self) -> Option<LaneTask> {
        self.take_first(LaneTask::is_request)
    }

    pub(super) fn take_read(&self) -> Option<LaneTask> {
        self.take_first(|work| !work.is_request())
    }

    pub(super) fn has_request(&self) -> bool {
        self.has_any() && self.list.lock().tasks.iter().any(LaneTask::is_request)
    }

    pub(super) fn buffered(&self) -> (u32, u64) {
        let list = self.list.lock();
        (list.buffered, list.buffered_bytes)
    }

    pub(super) fn stop(&self) -> VecDeque<LaneTask> {
        self.update(|list| std::mem::replace(list, TaskList { stopped: true, ..TaskList::default() }).tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: usize) -> LaneTask {
        LaneTask::RunCollocated(ParkedRequest { bytes, resume: Box::new(|_| {}) })
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
        assert!(!list.has_any(), "a stopped list must drop a task, because no thread would take it");
    }
}
