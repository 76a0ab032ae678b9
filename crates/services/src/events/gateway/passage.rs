//! The path of an event through federated channels, and the decision whether a gateway passes the
//! event on.

/// The identity of a channel: a random number that a channel gets when it is served. 0 stands for
/// no channel.
pub(in crate::events) type ChannelId = u64;

/// Maximum number of channels on the path of an event or of a demand.
pub(in crate::events) const MAX_PATH: usize = 32;

/// The channels that an event has been in, and its number.
///
/// The first channel of `path` gave the event its number, and gives each number once. So the first
/// channel and the number identify the event in all channels. The last channel is the one that
/// passes the event on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::events) struct Passage {
    pub(in crate::events) path: Vec<ChannelId>,
    pub(in crate::events) number: u64,
}

/// The reason why a gateway does not pass an event on. Neither reason counts as a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) enum Held {
    /// The time to live is 0 or less.
    TimeToLive,
    /// The event has been in the destination, or in too many channels.
    Returned,
}

/// Returns the event's time to live behind the gateway to the channel `to`, or the reason why the
/// event does not cross.
pub(in crate::events) fn cross(ttl: i32, path: &[ChannelId], to: ChannelId) -> Result<i32, Held> {
    if ttl <= 0 {
        return Err(Held::TimeToLive);
    }
    if path.contains(&to) || path.len() >= MAX_PATH {
        return Err(Held::Returned);
    }
    Ok(ttl - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_holds_events_without_time_to_live_and_events_that_return() {
        assert_eq!(cross(1, &[1], 2), Ok(0));
        assert_eq!(cross(i32::MAX, &[], 2), Ok(i32::MAX - 1));
        for ttl in [0, -1, i32::MIN] {
            assert_eq!(cross(ttl, &[1], 2), Err(Held::TimeToLive));
        }
        assert_eq!(cross(5, &[2, 1], 2), Err(Held::Returned));
        assert_eq!(cross(5, &[1; MAX_PATH], 2), Err(Held::Returned));
    }
}
