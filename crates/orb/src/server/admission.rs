//! Decisions whether a lane admits a connection or a request within its limits.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionAdmission {
    Accept,
    Refuse,
}

#[cfg(any(feature = "half-sync", feature = "fuzzing", test))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestAdmission {
    Run,
    Queue,
    Refuse,
}

#[must_use]
pub(crate) fn admit_connection(closing: bool, open: usize, max: usize) -> ConnectionAdmission {
    if closing || open >= max { ConnectionAdmission::Refuse } else { ConnectionAdmission::Accept }
}

#[cfg(any(feature = "half-sync", feature = "fuzzing", test))]
#[must_use]
#[inline]
pub(crate) fn admit_request(queue: Option<(usize, usize)>) -> RequestAdmission {
    match queue {
        None => RequestAdmission::Run,
        Some((waiting, max)) if waiting < max => RequestAdmission::Queue,
        Some(_) => RequestAdmission::Refuse,
    }
}

/// Returns true if a queue that holds `waiting` bytes, and may hold `max` bytes, has room for
/// `more` bytes. An empty queue accepts a request of any size, because a request above `max` could
/// otherwise never run.
#[must_use]
#[inline]
pub(crate) fn bytes_fit(waiting: usize, more: usize, max: usize) -> bool {
    waiting == 0 || waiting.saturating_add(more) <= max
}

#[must_use]
#[inline]
pub(crate) fn may_read(congested: bool, waiting: u32, max: u32) -> bool {
    !congested && waiting < max
}

/// Returns the part of a lane's limit that one connection may use: an eighth, and at least 1. The
/// requests of other peers then have room.
#[must_use]
pub(crate) fn fair_share(bound: usize) -> usize {
    (bound / 8).max(1)
}

/// Returns true if a waiting request may run. After CloseConnection, which says that unanswered
/// requests did not run, a request of a retired connection must not run.
#[must_use]
pub(crate) fn may_still_run(connection_lives: bool, closing: bool) -> bool {
    connection_lives || !closing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_bounded_and_a_closing_lane_admits_none() {
        assert_eq!(admit_connection(false, 1, 2), ConnectionAdmission::Accept);
        assert_eq!(admit_connection(false, 2, 2), ConnectionAdmission::Refuse);
        assert_eq!(admit_connection(true, 0, 2), ConnectionAdmission::Refuse);
    }

    #[test]
    fn requests_run_queue_or_are_refused() {
        assert_eq!(admit_request(None), RequestAdmission::Run);
        assert_eq!(admit_request(Some((1, 2))), RequestAdmission::Queue);
        assert_eq!(admit_request(Some((2, 2))), RequestAdmission::Refuse);
        assert_eq!(admit_request(Some((0, 0))), RequestAdmission::Refuse);
    }

    #[test]
    fn queued_bytes_are_bounded_after_the_first_request() {
        assert!(bytes_fit(0, usize::MAX, 1));
        assert!(bytes_fit(1, 2, 3));
        assert!(!bytes_fit(1, 3, 3) && !bytes_fit(1, usize::MAX, 3));
    }

    #[test]
    fn connection_is_not_read_while_replies_or_too_many_requests_wait() {
        assert!(may_read(false, 3, 4));
        assert!(!may_read(false, 4, 4));
        assert!(!may_read(true, 0, 4));
    }

    #[test]
    fn connection_share_of_a_queue_is_an_eighth_and_at_least_one() {
        assert_eq!([0, 1, 15, 16, 1000].map(fair_share), [1, 1, 1, 2, 125]);
    }

    #[test]
    fn request_reported_as_not_run_does_not_run() {
        assert!(!may_still_run(false, true));
        assert!(may_still_run(true, true) && may_still_run(false, false));
    }
}
