//! The declared loads of a channel file, for the analysis of `corelane-services`.

use corelane_services::events::schedule::{PublicationLoad, ScheduledLoad, SubscriptionLoad};

use super::file::{ChannelFile, FilePublication, FileSubscription};

/// Returns the loads of a file. In a file with a schedule, publications without an entry are in the
/// least urgent lane.
pub(super) fn load(file: &ChannelFile) -> ScheduledLoad {
    let last = file.lanes.len().saturating_sub(1);
    let lane = |publication: &FilePublication| {
        let of_type = || file.lanes.iter().position(|lane| lane.types.contains(&publication.event_type));
        let of_type = || if file.is_scheduled() { None } else { of_type() };
        publication.lane.or_else(of_type).unwrap_or(last)
    };
    let publication = |publication: &FilePublication| PublicationLoad {
        wcet: publication.wcet,
        deadline: publication.deadline,
        jitter: publication.jitter,
        lane: lane(publication),
    };
    let subscription = |subscription: &FileSubscription| SubscriptionLoad {
        wcet: subscription.wcet,
        deadline: subscription.deadline,
        lane: subscription.lane,
        core: subscription.core,
    };
    ScheduledLoad {
        lanes: file.lanes.len(),
        overhead: file.overhead,
        publications: file.publications.iter().map(publication).collect(),
        subscriptions: file.subscriptions.iter().map(subscription).collect(),
    }
}
