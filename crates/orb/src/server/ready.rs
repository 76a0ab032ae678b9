//! What a lane's threads have to do that no descriptor reports: reading that goes on, requests that were held, handed over or
//! buffered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane_sys::lock::{PiMutex, Scope};

use super::connection::{Connection, Waiting};
use super::worker::Message;
use crate::poa::Held;

/// Requests that came in elsewhere and wait here at most; further ones are answered with TRANSIENT 1.
const HANDED_OVER: usize = 1024;

/// Something to do that no descriptor reports.
#[derive(Debug)]
pub(crate) enum Work {
    /// Messages that have been read already may wait at this place.
    Rest((u32, u32)),
    /// The connection at this place may have more to read.
    Read((u32, u32)),
    /// Something happened to this connection, whose stream has no descriptor.
    Look(Arc<Connection>),
    /// A message that was held back may run now.
    Serve(Waiting, Message),
    /// A call within the process that this lane's threads are to run.
    Resume(Held),
    /// A request that the keeper has read.
    Buffered {
        /// The more urgent go first.
        priority: i16,
        waiting: Waiting,
        message: Message,
        octets: u64,
    },
}

impl Work {
    /// Whether it is a request, and no reading to be done.
    fn is_request(&self) -> bool {
        !matches!(self, Work::Read(_) | Work::Rest(_) | Work::Look(_))
    }
}

/// The list. Threads of other priorities put requests here that came in with them, so whoever holds its lock inherits.
#[derive(Debug)]
pub(super) struct ReadyList {
    list: PiMutex<List>,
    /// Spares the lock where nothing is listed.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct List {
    work: VecDeque<Work>,
    /// Buffered requests among it, and their octets.
    buffered: u32,
    octets: u64,
    /// Nobody will take anything any more.
    stopped: bool,
}

impl List {
    fn insert(&mut self, index: usize, work: Work) {
        if let Work::Buffered { octets, .. } = &work {
            self.buffered += 1;
            self.octets += octets;
        }
        self.work.insert(index, work);
    }

    fn remove(&mut self, index: usize) -> Option<Work> {
        let work = self.work.remove(index)?;
        if let Work::Buffered { octets, .. } = &work {
            self.buffered -= 1;
            self.octets -= octets;
        }
        Some(work)
    }
}

impl ReadyList {
    pub(super) fn new() -> Self {
        ReadyList { list: PiMutex::new("ready list", Scope::Lane, List::default()), count: AtomicUsize::new(0) }
    }

    /// Whether anything is listed.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    fn change<R>(&self, change: impl FnOnce(&mut List) -> R) -> R {
        let mut list = self.list.lock();
        let result = change(&mut list);
        self.count.store(list.work.len(), Ordering::SeqCst);
        result
    }

    /// Lists work.
    pub(super) fn push(&self, work: Work) {
        self.change(|list| list.insert(list.work.len(), work));
    }

    /// Lists a request that came in elsewhere; false if too much waits, or nobody will run it any more.
    pub(super) fn hand_over(&self, work: Work) -> bool {
        self.change(|list| {
            let has_room = list.work.len() < HANDED_OVER && !list.stopped;
            if has_room {
                list.insert(list.work.len(), work);
            }
            has_room
        })
    }

    /// Lists a request that the keeper has read, behind those that are as urgent.
    pub(super) fn buffer(&self, priority: i16, waiting: Waiting, message: Message, octets: u64) {
        self.change(|list| {
            let is_less = |work: &Work| matches!(work, Work::Buffered { priority: other, .. } if *other < priority);
            let at = list.work.iter().position(is_less).unwrap_or(list.work.len());
            list.insert(at, Work::Buffered { priority, waiting, message, octets });
        });
    }

    /// Lists a request that was taken and not run; it is the oldest.
    #[cold]
    pub(super) fn put_back(&self, work: Option<Work>) {
        self.change(|list| work.into_iter().for_each(|work| list.insert(0, work)));
    }

    /// The next work, and whether more is listed.
    pub(super) fn next(&self) -> (Option<Work>, bool) {
        self.change(|list| (list.remove(0), !list.work.is_empty()))
    }

    fn take_first(&self, wanted: impl Fn(&Work) -> bool) -> Option<Work> {
        self.change(|list| list.work.iter().position(wanted).and_then(|index| list.remove(index)))
    }

    /// The oldest request.
    pub(super) fn take_request(&self) -> Option<Work> {
        self.take_first(Work::is_request)
    }

    /// The oldest reading.
    pub(super) fn take_reading(&self) -> Option<Work> {
        self.take_first(|work| !work.is_request())
    }

    /// Whether a request is listed.
    pub(super) fn has_request(&self) -> bool {
        self.has_any() && self.list.lock().work.iter().any(Work::is_request)
    }

    /// How many requests are buffered, and their octets.
    pub(super) fn buffered(&self) -> (u32, u64) {
        let list = self.list.lock();
        (list.buffered, list.octets)
    }

    /// Takes everything; nothing is handed over any more. What waits within the process for something in it learns by its end
    /// that nobody comes.
    pub(super) fn stop(&self) -> VecDeque<Work> {
        self.change(|list| std::mem::replace(list, List { stopped: true, ..List::default() }).work)
    }
}
