//! What a lane's threads have to do that no descriptor reports: reading that goes on, requests that were held, handed over or
//! buffered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane_sys::lock::{PiMutex, Scope};

use super::admission;
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
    /// The connections hold too much.
    MakeRoom,
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
        !matches!(self, Work::Read(_) | Work::Rest(_) | Work::Look(_) | Work::MakeRoom)
    }

    /// Octets that wait with it: of a request that was handed over or held. Those that are buffered have their own count.
    fn octets(&self) -> usize {
        match self {
            Work::Serve(_, message) => message.octets(),
            Work::Resume(held) => held.octets,
            _ => 0,
        }
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
    /// Octets of the other requests.
    waiting: usize,
    /// Nobody will take anything any more.
    stopped: bool,
}

impl List {
    fn insert(&mut self, index: usize, work: Work) {
        if let Work::Buffered { octets, .. } = &work {
            self.buffered += 1;
            self.octets += octets;
        }
        self.waiting += work.octets();
        self.work.insert(index, work);
    }

    fn remove(&mut self, index: usize) -> Option<Work> {
        let work = self.work.remove(index)?;
        if let Work::Buffered { octets, .. } = &work {
            self.buffered -= 1;
            self.octets -= octets;
        }
        self.waiting -= work.octets();
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

    /// Lists work, unless nobody will do it any more.
    pub(super) fn push(&self, work: Work) {
        self.push_if(work, |_| true);
    }

    /// Lists a request that came in elsewhere; false if too much waits, more than `most` octets of requests for one, or nobody will
    /// run it any more.
    pub(super) fn hand_over(&self, work: Work, most: usize) -> bool {
        let octets = work.octets();
        self.push_if(work, |list| list.work.len() < HANDED_OVER && admission::octets_fit(list.waiting, octets, most))
    }

    fn push_if(&self, work: Work, has_room: impl FnOnce(&List) -> bool) -> bool {
        let refused = self.change(|list| {
            if list.stopped || !has_room(list) {
                return Some(work);
            }
            list.insert(list.work.len(), work);
            None
        });
        // Not under the lock: a request that goes may list its connection for reading.
        refused.is_none()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn held(octets: usize) -> Work {
        Work::Resume(Held { octets, resume: Box::new(|_| {}) })
    }

    #[test]
    fn what_is_handed_over_is_bounded_by_number_and_by_octets() {
        let list = ReadyList::new();
        assert!(list.hand_over(held(90), 100) && list.hand_over(held(10), 100));
        assert!(!list.hand_over(held(1), 100));
        assert!(list.next().0.is_some() && list.hand_over(held(90), 100));
        assert!((2..HANDED_OVER).all(|_| list.hand_over(held(0), 100)));
        assert!(!list.hand_over(held(0), 100));
        assert_eq!(list.stop().len(), HANDED_OVER);
        assert!(!list.hand_over(held(0), 100) && !list.has_any());
        list.push(held(0));
        assert!(!list.has_any(), "nobody would come for it");
    }
}
