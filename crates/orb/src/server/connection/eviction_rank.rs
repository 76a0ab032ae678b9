//! The order in which a lane evicts connections.

/// Value of `last_message_at` for a connection on which no complete message has arrived.
pub(crate) const NO_MESSAGE: u32 = 0;
const MIN_IDLE_SECONDS: u32 = 10;
/// Classes that are declared first are evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum IdleClass {
    NeverSent,
    FirstMessagePartial,
    Idle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EvictionRank {
    class: IdleClass,
    last_message_at: u32,
    connection_number: u64,
}

/// Returns the rank of a connection; `None` if the connection must not be evicted. The connection
/// with the lowest rank is evicted first. `last_message_at` and `now` are in seconds of the lane's
/// coarse clock. An older connection has a lower `connection_number`.
#[must_use]
pub(crate) fn eviction_rank(
    last_message_at: u32,
    has_partial_message: bool,
    now: u32,
    connection_number: u64,
) -> Option<EvictionRank> {
    let class = match (last_message_at, has_partial_message) {
        (NO_MESSAGE, false) => IdleClass::NeverSent,
        (NO_MESSAGE, true) => IdleClass::FirstMessagePartial,
        (_, false) if now.saturating_sub(last_message_at) >= MIN_IDLE_SECONDS => IdleClass::Idle,
        _ => return None,
    };
    Some(EvictionRank { class, last_message_at, connection_number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_connections_are_evicted_before_idle_ones() {
        let now = 100;
        let never = |connection_number| eviction_rank(NO_MESSAGE, false, now, connection_number).unwrap();
        let idle = |last_message_at, connection_number| eviction_rank(last_message_at, false, now, connection_number);
        let mut ranks = [
            idle(20, 1).unwrap(),
            never(9),
            eviction_rank(NO_MESSAGE, true, now, 3).unwrap(),
            never(7),
            idle(10, 2).unwrap(),
        ];
        ranks.sort_unstable();
        assert_eq!(ranks.map(|eviction_rank| eviction_rank.connection_number), [7, 9, 3, 2, 1]);
        assert_eq!(
            idle(now - MIN_IDLE_SECONDS + 1, 1),
            None,
            "a connection must not be evicted before it has been idle for MIN_IDLE_SECONDS"
        );
        assert_eq!(
            eviction_rank(10, true, now, 1),
            None,
            "a connection that has sent messages must not be evicted while a message is incomplete"
        );
    }
}
