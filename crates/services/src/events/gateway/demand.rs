//! The demand of federated channels: which events a gateway subscribes.
//!
//! A channel reports the events that its own consumers want, and those that channels behind its
//! gateways want. A demand names the channels on its path, so a channel ignores its own demand when
//! gateways report it back. A demand thus ends when its consumers leave.

use std::collections::{BTreeMap, BTreeSet};

use super::passage::{ChannelId, MAX_PATH};
use crate::events::queue::LatestKey;

/// Maximum number of demands that a channel reports, or takes from a gateway.
pub(in crate::events) const MAX_DEMANDS: usize = 256;
/// Maximum number of types and sources of a demand. A channel reports a longer demand as one for
/// every event, and refuses a longer demand of a gateway.
pub(in crate::events) const MAX_WANTED: usize = 512;

/// Maximum number of types and sources of all demands that a channel reports, or takes from a
/// gateway.
pub(in crate::events) const MAX_ALL_WANTED: usize = 1 << 14;

const EVERY_EVENT: LatestKey = (0, 0);

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::events) struct Demand {
    /// The channels from the wanting channel to the channel that reports the demand. A channel that
    /// reports only the demand of its own consumers, such as TAO's, has no identity: the path is
    /// empty.
    pub(in crate::events) path: Vec<ChannelId>,
    pub(in crate::events) wanted: BTreeSet<LatestKey>,
}

fn bounded(wanted: BTreeSet<LatestKey>) -> BTreeSet<LatestKey> {
    let is_every = wanted.contains(&EVERY_EVENT) || wanted.len() > MAX_WANTED;
    if is_every { BTreeSet::from([EVERY_EVENT]) } else { wanted }
}

/// Returns the demand that the channel `own` reports. `gateways` has the demands behind each of its
/// gateways.
///
/// For each wanting channel and each gateway, the report has one shortest path. It has the paths
/// through all gateways, because a channel that is on one of the paths ignores that path only. If
/// there are more paths than a report may have, `own` itself wants every event, so that no event of
/// an omitted demand is missing.
pub(in crate::events) fn reported<'d>(
    own: ChannelId,
    wanted: BTreeSet<LatestKey>,
    gateways: impl Iterator<Item = &'d [Demand]>,
) -> Vec<Demand> {
    let mut ways: BTreeSet<(usize, &[ChannelId], &BTreeSet<LatestKey>)> = BTreeSet::new();
    for demands in gateways {
        let mut shortest: BTreeMap<ChannelId, &Demand> = BTreeMap::new();
        for demand in demands.iter().filter(|demand| !demand.path.contains(&own) && demand.path.len() < MAX_PATH) {
            let Some(origin) = demand.path.first() else { continue };
            let known = shortest.entry(*origin).or_insert(demand);
            if (demand.path.len(), &demand.path) < (known.path.len(), &known.path) {
                *known = demand;
            }
        }
        ways.extend(shortest.into_values().map(|demand| (demand.path.len(), &demand.path[..], &demand.wanted)));
    }
    let wanted = if ways.len() < MAX_DEMANDS { bounded(wanted) } else { BTreeSet::from([EVERY_EVENT]) };
    let mut all = Vec::new();
    if !wanted.is_empty() {
        all.push(Demand { path: vec![own], wanted });
    }
    let mut left = MAX_ALL_WANTED - MAX_WANTED - MAX_DEMANDS;
    let longer = |(_, path, wanted): (usize, &[ChannelId], &BTreeSet<LatestKey>)| {
        let path = path.iter().copied().chain([own]).collect();
        let has_room = wanted.len() <= left;
        left -= if has_room { wanted.len() } else { 0 };
        Demand { path, wanted: if has_room { bounded(wanted.clone()) } else { BTreeSet::from([EVERY_EVENT]) } }
    };
    all.extend(ways.into_iter().map(longer).take(MAX_DEMANDS - 1));
    all
}

/// Returns the types and sources that a gateway subscribes at the channel `from`, if its
/// destination reports these demands.
pub(in crate::events) fn subscription(from: ChannelId, demands: &[Demand]) -> BTreeSet<LatestKey> {
    let of_others = demands.iter().filter(|demand| !demand.path.contains(&from));
    bounded(of_others.flat_map(|demand| demand.wanted.iter().copied()).collect())
}

/// Returns the types and sources that the consumers of the destination itself want.
pub(in crate::events) fn own_demand(demands: &[Demand]) -> BTreeSet<LatestKey> {
    let own = demands.iter().filter(|demand| demand.path.len() <= 1);
    bounded(own.flat_map(|demand| demand.wanted.iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(path: &[ChannelId], types: &[i32]) -> Demand {
        Demand { path: path.to_vec(), wanted: types.iter().map(|event_type| (*event_type, 0)).collect() }
    }

    #[test]
    fn channel_does_not_hear_its_own_demand() {
        let behind = [demand(&[3], &[16]), demand(&[1, 2], &[17]), demand(&[4, 3], &[18]), demand(&[], &[20])];
        let reports = reported(1, BTreeSet::from([(19, 0)]), [&behind[..]].into_iter());
        assert_eq!(reports, [demand(&[1], &[19]), demand(&[3, 1], &[16]), demand(&[4, 3, 1], &[18])]);
        assert_eq!(subscription(1, &behind), BTreeSet::from([(16, 0), (18, 0), (20, 0)]));
        assert_eq!(own_demand(&behind), BTreeSet::from([(16, 0), (20, 0)]));
    }

    #[test]
    fn one_shortest_way_through_each_gateway_is_reported() {
        let [first, second] =
            [[demand(&[9, 8, 3], &[16]), demand(&[9, 3], &[16])], [demand(&[9, 4], &[16]), demand(&[9, 6, 4], &[16])]];
        let reports = reported(1, BTreeSet::new(), [&first[..], &second[..]].into_iter());
        assert_eq!(reports, [demand(&[9, 3, 1], &[16]), demand(&[9, 4, 1], &[16])]);
    }

    #[test]
    fn long_demands_are_bounded() {
        let types: Vec<i32> = (16..16 + 2 * MAX_WANTED as i32).collect();
        let many: Vec<Demand> = (10..10 + 2 * MAX_DEMANDS as u64).map(|origin| demand(&[origin], &types)).collect();
        let reports = reported(1, demand(&[], &[16]).wanted, [&many[..]].into_iter());
        assert_eq!(reports.len(), MAX_DEMANDS);
        // Some paths are left out, so the channel itself wants every event.
        assert_eq!((reports[0].path.len(), &reports[0].wanted), (1, &BTreeSet::from([EVERY_EVENT])));
        assert_eq!(reports[1].wanted, BTreeSet::from([EVERY_EVENT]));
        let half: Vec<Demand> = many.iter().map(|it| demand(&it.path, &types[..MAX_WANTED / 2])).collect();
        let reports = reported(1, BTreeSet::new(), [&half[..]].into_iter());
        let all: usize = reports.iter().map(|report| report.wanted.len()).sum();
        assert!(reports.len() == MAX_DEMANDS && all <= MAX_ALL_WANTED && reports[1].wanted.len() == MAX_WANTED / 2);
        assert_eq!(reports[0].wanted, BTreeSet::from([EVERY_EVENT]));
        let reports = reported(1, BTreeSet::new(), [&half[..MAX_DEMANDS - 1]].into_iter());
        assert!(reports.len() == MAX_DEMANDS - 1 && reports[0].path.len() == 2);
        assert_eq!(subscription(1, &many), BTreeSet::from([EVERY_EVENT]));
        let long = demand(&(10..10 + MAX_PATH as u64).collect::<Vec<_>>(), &[16]);
        assert_eq!(reported(1, BTreeSet::new(), [&[long][..]].into_iter()), []);
    }
}
