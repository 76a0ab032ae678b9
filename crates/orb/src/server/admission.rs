//! Decisions whether a lane admits a connection or a request within its limits. The functions are
//! pure: a caller passes the counts, and acts on the decision.

/// The decision on a connection that was accepted from a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionAdmission {
    /// The lane serves the connection.
    Accept,
    /// The lane closes the connection, because the lane has its maximum number of connections or is
    /// closing.
    Refuse,
}

/// The decision on a request that has been read completely.
#[cfg(any(feature = "half-sync", feature = "fuzzing", test))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestAdmission {
    /// The thread that read the request runs it.
    Run,
    /// The request waits in the lane's queue until another thread runs it.
    Queue,
    /// The request does not run. The client gets TRANSIENT 1 (CORBA 3.0.3, section 4.12.4). A
    /// oneway is dropped.
    Refuse,
}

/// Decides on a new connection to a lane that has `open` connections, and may have `max`. `closing`
/// is true if the lane is closing.
#[must_use]
pub(crate) fn admit_connection(closing: bool, open: usize, max: usize) -> ConnectionAdmission {
    if closing || open >= max { ConnectionAdmission::Refuse } else { ConnectionAdmission::Accept }
}

/// Decides on a request. `queue` is the number of requests in the lane's queue and the maximum of
/// this number, or `None` if the lane has no queue.
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

/// Returns true if a request of `more` bytes may be queued behind `waiting` bytes of requests, with
/// at most `max` bytes in the queue. An empty queue accepts a request of any size, because a
/// request of more than `max` bytes could otherwise never run.
#[must_use]
#[inline]
pub(crate) fn bytes_fit(waiting: usize, more: usize, max: usize) -> bool {
    waiting == 0 || waiting.saturating_add(more) <= max
}

/// Returns true if the lane may read from a connection. It may not while the connection is
/// `congested`: the peer leaves replies unread. It may not while `waiting`, the number of the
/// connection's requests that wait, is at least `max`
/// ([`Limits::max_outstanding_requests`](crate::Limits)). Input that the lane does not read fills
/// the transport's buffers, and then blocks the peer's sending.
#[must_use]
#[inline]
pub(crate) fn may_read(congested: bool, waiting: u32, max: u32) -> bool {
    !congested && waiting < max
}

/// Returns the maximum share of one connection in a queue with the bound `bound`: an eighth, but at
/// least 1. With this share, a peer that sends many requests delays its own requests, and leaves
/// room for the requests of other peers.
#[must_use]
pub(crate) fn fair_share(bound: usize) -> usize {
    (bound / 8).max(1)
}

/// Returns true if a request that waited may run now. It may not run if its connection has ended
/// and the lane is `closing`: the lane has sent CloseConnection, which says that unanswered
/// requests did not run. If the peer has closed the connection, its requests run, because they may
/// be oneways.
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
