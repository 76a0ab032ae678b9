//! Decisions about requests that arrive while every thread of their lane is busy. The overload
//! thread tries in this order: a new thread, a borrowed thread, the buffer, a refusal.

/// Default maximum number of buffered requests.
pub const DEFAULT_MAX_BUFFERED_REQUESTS: u32 = 1024;
/// Default maximum total size in bytes of the buffered requests.
pub const DEFAULT_MAX_BUFFERED_BYTES: u64 = 64 << 20;

/// Bounds on the requests that a lane buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferBounds {
    /// Maximum number of requests; 0 means [`DEFAULT_MAX_BUFFERED_REQUESTS`].
    pub max_requests: u32,
    /// Maximum total size in bytes; 0 means [`DEFAULT_MAX_BUFFERED_BYTES`].
    pub max_bytes: u64,
}

impl BufferBounds {
    fn max_requests(self) -> u32 {
        if self.max_requests == 0 { DEFAULT_MAX_BUFFERED_REQUESTS } else { self.max_requests }
    }

    fn max_bytes(self) -> u64 {
        if self.max_bytes == 0 { DEFAULT_MAX_BUFFERED_BYTES } else { self.max_bytes }
    }
}

/// The overload rules of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverloadRules {
    /// Maximum number of dynamic threads of the lane, beyond its static threads.
    pub dynamic_threads: u32,
    /// True if the lane may borrow idle threads of lower lanes.
    pub can_borrow: bool,
    /// The bounds on requests that wait in the server; `None` if requests may not wait there.
    pub buffering: Option<BufferBounds>,
}

impl OverloadRules {
    /// Returns true if these rules require an overload thread.
    #[must_use]
    pub fn needs_overload_thread(self) -> bool {
        self.dynamic_threads > 0 || self.can_borrow || self.buffering.is_some()
    }
}

/// The load of a lane when its overload thread decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneLoad {
    /// Number of running dynamic threads of the lane.
    pub dynamic_threads: u32,
    /// True if a thread of a lower lane is idle.
    pub can_borrow: bool,
    /// Number of requests that wait in the server's buffer.
    pub buffered_requests: u32,
    /// Total size in bytes of the waiting requests.
    pub buffered_bytes: u64,
}

/// The decision of an overload thread about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadAction {
    /// A new dynamic thread runs the request.
    Spawn,
    /// A thread of a lower lane runs the request, at this lane's priority.
    Borrow,
    /// The request waits for a thread.
    Buffer,
    /// The request is refused with TRANSIENT 1, because the buffer is full.
    Refuse,
}

impl OverloadRules {
    /// Returns true if a request may be read from the transport.
    #[must_use]
    pub fn can_accept_request(self, now: LaneLoad) -> bool {
        self.buffering.is_some() || self.thread(now).is_some()
    }

    fn thread(self, now: LaneLoad) -> Option<OverloadAction> {
        if now.dynamic_threads < self.dynamic_threads {
            return Some(OverloadAction::Spawn);
        }
        (self.can_borrow && now.can_borrow).then_some(OverloadAction::Borrow)
    }

    /// Decides about a request of `bytes` bytes that was read from the transport.
    #[must_use]
    pub fn decide(self, now: LaneLoad, bytes: u64) -> OverloadAction {
        if let Some(action) = self.thread(now) {
            return action;
        }
        match self.buffering {
            Some(bounds) if now.buffered_requests >= bounds.max_requests() => OverloadAction::Refuse,
            Some(bounds) if now.buffered_bytes.saturating_add(bytes) > bounds.max_bytes() => OverloadAction::Refuse,
            Some(_) => OverloadAction::Buffer,
            // A thread was available when the request was read, but is not available now. The next
            // free thread runs the request.
            None => OverloadAction::Buffer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: OverloadRules = OverloadRules {
        dynamic_threads: 1,
        can_borrow: true,
        buffering: Some(BufferBounds { max_requests: 2, max_bytes: 100 }),
    };

    #[test]
    fn overload_actions_follow_the_documented_order() {
        let mut now = LaneLoad { can_borrow: true, ..LaneLoad::default() };
        assert_eq!(ALL.decide(now, 10), OverloadAction::Spawn);
        now.dynamic_threads = 1;
        assert_eq!(ALL.decide(now, 10), OverloadAction::Borrow);
        now.can_borrow = false;
        assert_eq!(ALL.decide(now, 100), OverloadAction::Buffer);
        assert_eq!(ALL.decide(now, 101), OverloadAction::Refuse);
        (now.buffered_requests, now.buffered_bytes) = (1, 91);
        assert_eq!((ALL.decide(now, 9), ALL.decide(now, 10)), (OverloadAction::Buffer, OverloadAction::Refuse));
        now.buffered_requests = 2;
        assert_eq!(ALL.decide(now, 0), OverloadAction::Refuse);
    }

    #[test]
    fn without_buffering_requests_stay_in_the_transport() {
        let rules = OverloadRules { buffering: None, ..ALL };
        let mut now = LaneLoad::default();
        assert!(rules.can_accept_request(now));
        now.dynamic_threads = 1;
        assert!(!rules.can_accept_request(now));
        now.can_borrow = true;
        assert!(rules.can_accept_request(now));
        assert!(!OverloadRules { can_borrow: false, ..rules }.can_accept_request(now));
        assert!(ALL.can_accept_request(LaneLoad { dynamic_threads: 1, ..LaneLoad::default() }));
    }

    #[test]
    fn zero_stands_for_the_default_bound() {
        let rules = OverloadRules {
            buffering: Some(BufferBounds { max_requests: 0, max_bytes: 0 }),
            ..OverloadRules::default()
        };
        let at = |waiting, buffered_bytes| {
            rules.decide(LaneLoad { buffered_requests: waiting, buffered_bytes, ..LaneLoad::default() }, 1)
        };
        assert_eq!(
            (at(DEFAULT_MAX_BUFFERED_REQUESTS - 1, 0), at(DEFAULT_MAX_BUFFERED_REQUESTS, 0)),
            (OverloadAction::Buffer, OverloadAction::Refuse)
        );
        assert_eq!(
            (at(0, DEFAULT_MAX_BUFFERED_BYTES - 1), at(0, DEFAULT_MAX_BUFFERED_BYTES)),
            (OverloadAction::Buffer, OverloadAction::Refuse)
        );
        assert!(rules.needs_overload_thread() && !OverloadRules::default().needs_overload_thread());
    }

    #[test]
    fn each_rule_needs_an_overload_thread() {
        let none = OverloadRules::default();
        assert!(!none.needs_overload_thread());
        assert!(OverloadRules { dynamic_threads: 1, ..none }.needs_overload_thread());
        assert!(OverloadRules { can_borrow: true, ..none }.needs_overload_thread());
        assert!(
            OverloadRules { buffering: Some(BufferBounds { max_requests: 1, max_bytes: 1 }), ..none }
                .needs_overload_thread()
        );
    }
}
