//! What becomes of a request while every thread of its lane is busy: the decision of the lane's keeper, in this order: a new thread, a
//! borrowed one, the buffer, a refusal. What allows none of these leaves the request in the transport.

/// Bound of buffered requests where none is given.
pub const REQUESTS: u32 = 1024;
/// Bound of their octets where none is given.
pub const OCTETS: u64 = 64 << 20;

/// How many requests may wait, and how large they may be together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Requests; 0 stands for [`REQUESTS`].
    pub requests: u32,
    /// Octets; 0 stands for [`OCTETS`].
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

/// What the pool allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Threads beyond the static ones.
    pub dynamic_threads: u32,
    /// Idle threads of lower lanes may be borrowed.
    pub borrowing: bool,
    /// Requests may wait in the server, up to the bound.
    pub buffering: Option<Bound>,
}

impl Rules {
    /// Whether a lane needs a keeper for them.
    #[must_use]
    pub fn need_a_keeper(self) -> bool {
        self.dynamic_threads > 0 || self.borrowing || self.buffering.is_some()
    }
}

/// How things are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    /// Dynamic threads that run.
    pub dynamic_threads: u32,
    /// A thread of a lower lane is idle.
    pub can_borrow: bool,
    /// Requests that wait in the server.
    pub waiting: u32,
    /// Their octets.
    pub waiting_octets: u64,
}

/// What becomes of a request.
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
    /// Whether a request may be taken from the transport at all.
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

    /// What becomes of a request of so many `octets` that has been taken from the transport.
    #[must_use]
    pub fn decide(self, now: Situation, octets: u64) -> Verdict {
        if let Some(verdict) = self.thread(now) {
            return verdict;
        }
        match self.buffering {
            Some(bound) if now.waiting >= bound.requests() => Verdict::Refuse,
            Some(bound) if now.waiting_octets.saturating_add(octets) > bound.octets() => Verdict::Refuse,
            Some(_) => Verdict::Buffer,
            // It was read when there was a thread for it; the next one that is free runs it.
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
        assert!(rules.need_a_keeper() && !Rules::default().need_a_keeper());
    }
}
