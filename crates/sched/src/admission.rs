//! The decision about a request that arrives while every thread of its lane is busy. The overload
//! thread tries in this order: a new thread, a borrowed one, the buffer, a refusal. If the rules
//! allow none of these, the request stays in the transport.

/// Default maximum number of buffered requests.
pub const REQUESTS: u32 = 1024;
/// Default maximum size in bytes of all buffered requests.
pub const OCTETS: u64 = 64 << 20;

/// The bounds on buffered requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Maximum number of requests; 0 stands for [`REQUESTS`].
    pub requests: u32,
    /// Maximum total size in bytes; 0 stands for [`OCTETS`].
    pub octets: u64,
}

impl Bound {
    fn requests(self) -> u32 {
        if self.requests == 0 { REQUESTS } else { self.requests }
    }

    fn octets(self) -> u64 {
        if self.octets == 0 { OCTETS } else { self.octets }
    }
}

/// The overload rules of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Maximum number of threads beyond the static ones.
    pub dynamic_threads: u32,
    /// True if idle threads of lower lanes may be borrowed.
    pub borrowing: bool,
    /// The bounds on requests that may wait in the server; `None` if none may.
    pub buffering: Option<Bound>,
}

impl Rules {
    /// Returns true if a lane needs an overload thread for these rules.
    #[must_use]
    pub fn need_overload_thread(self) -> bool {
        self.dynamic_threads > 0 || self.borrowing || self.buffering.is_some()
    }
}

/// The load of a lane at the time of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// Number of running dynamic threads.
    pub dynamic_threads: u32,
    /// True if a thread of a lower lane is idle.
    pub can_borrow: bool,
    /// Number of requests that wait in the server.
    pub waiting: u32,
    /// Total size in bytes of the waiting requests.
    pub waiting_octets: u64,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A new dynamic thread runs it.
    Spawn,
    /// A thread of a lower lane runs it, at this lane's priority.
    Borrow,
    /// It waits for a thread.
    Buffer,
    /// There is no room: TRANSIENT 1.
    Refuse,
}

impl Rules {
    /// Returns true if a request may be read from the transport.
    #[must_use]
    pub fn may_read(self, now: Situation) -> bool {
        self.buffering.is_some() || self.thread(now).is_some()
    }

    fn thread(self, now: Situation) -> Option<Verdict> {
        if now.dynamic_threads < self.dynamic_threads {
            return Some(Verdict::Spawn);
        }
        (self.borrowing && now.can_borrow).then_some(Verdict::Borrow)
    }

    /// Decides about a request of `octets` bytes that was read from the transport.
    #[must_use]
    pub fn decide(self, now: Situation, octets: u64) -> Verdict {
        if let Some(verdict) = self.thread(now) {
            return verdict;
        }
        match self.buffering {
            Some(bound) if now.waiting >= bound.requests() => Verdict::Refuse,
            Some(bound) if now.waiting_octets.saturating_add(octets) > bound.octets() => Verdict::Refuse,
            Some(_) => Verdict::Buffer,
            // It was read when a thread was available; the next free one runs it.
            None => Verdict::Buffer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Rules =
        Rules { dynamic_threads: 1, borrowing: true, buffering: Some(Bound { requests: 2, octets: 100 }) };

    #[test]
    fn a_new_thread_then_a_borrowed_one_then_the_buffer_then_a_refusal() {
        let mut now = Situation { can_borrow: true, ..Situation::default() };
        assert_eq!(ALL.decide(now, 10), Verdict::Spawn);
        now.dynamic_threads = 1;
        assert_eq!(ALL.decide(now, 10), Verdict::Borrow);
        now.can_borrow = false;
        assert_eq!(ALL.decide(now, 100), Verdict::Buffer);
        assert_eq!(ALL.decide(now, 101), Verdict::Refuse);
        (now.waiting, now.waiting_octets) = (1, 91);
        assert_eq!((ALL.decide(now, 9), ALL.decide(now, 10)), (Verdict::Buffer, Verdict::Refuse));
        now.waiting = 2;
        assert_eq!(ALL.decide(now, 0), Verdict::Refuse);
    }

    #[test]
    fn without_buffering_requests_stay_in_the_transport() {
        let rules = Rules { buffering: None, ..ALL };
        let mut now = Situation::default();
        assert!(rules.may_read(now));
        now.dynamic_threads = 1;
        assert!(!rules.may_read(now));
        now.can_borrow = true;
        assert!(rules.may_read(now));
        assert!(!Rules { borrowing: false, ..rules }.may_read(now));
        assert!(ALL.may_read(Situation { dynamic_threads: 1, ..Situation::default() }));
    }

    #[test]
    fn zero_is_no_absence_of_a_bound() {
        let rules = Rules { buffering: Some(Bound { requests: 0, octets: 0 }), ..Rules::default() };
        let at =
            |waiting, waiting_octets| rules.decide(Situation { waiting, waiting_octets, ..Situation::default() }, 1);
        assert_eq!((at(REQUESTS - 1, 0), at(REQUESTS, 0)), (Verdict::Buffer, Verdict::Refuse));
        assert_eq!((at(0, OCTETS - 1), at(0, OCTETS)), (Verdict::Buffer, Verdict::Refuse));
        assert!(rules.need_overload_thread() && !Rules::default().need_overload_thread());
    }

    #[test]
    fn each_rule_needs_an_overload_thread() {
        let none = Rules::default();
        assert!(!none.need_overload_thread());
        assert!(Rules { dynamic_threads: 1, ..none }.need_overload_thread());
        assert!(Rules { borrowing: true, ..none }.need_overload_thread());
        assert!(Rules { buffering: Some(Bound { requests: 1, octets: 1 }), ..none }.need_overload_thread());
    }
}
