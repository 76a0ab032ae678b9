//! The addresses of a reference, each in a separate reference, so that a command knows which
//! address answers.

use corelane::Ior;
use corelane_wire::giop::Version;
use corelane_wire::ior::{Profile, ProfileEndpoint, TaggedComponent, TaggedProfile, component_tag};
use corelane_wire::{CdrError, Limits};
use serde_json::{Value as Json, json};

use crate::text::printable;

/// Limits of ORBs that call candidates. The maximum length of a reference's text is four times the
/// default, because a `corbaloc:` reference becomes more than twice as long in its `IOR:` form.
pub(crate) const CANDIDATE_LIMITS: Limits =
    Limits { max_reference_text_length: 4 * Limits::DEFAULT.max_reference_text_length, ..Limits::DEFAULT };

#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) profile: usize,
    pub(crate) version: Version,
    pub(crate) endpoint: ProfileEndpoint,
    pub(crate) priority: Option<i16>,
    /// A reference with this address alone. It has no type id, so the ORB asks the object for its
    /// interface, and no policies, so requests carry no priority.
    pub(crate) ior: Ior,
}

pub(crate) fn candidates(ior: &Ior) -> Vec<Candidate> {
    let parsed = ior.profiles.iter().enumerate().filter_map(|(index, tagged)| Some((index + 1, tagged.parse().ok()?)));
    parsed.flat_map(|(number, profile)| of_profile(number, &profile)).collect()
}

fn of_profile(number: usize, profile: &Profile<'_>) -> Vec<Candidate> {
    let lanes = profile.lane_endpoints(&Limits::DEFAULT);
    let priority_of =
        |endpoint: &ProfileEndpoint| lanes.iter().find(|(lane, _)| lane == endpoint).map(|(_, priority)| *priority);
    let own = profile.endpoints();
    let others = lanes.iter().filter(|(lane, _)| !own.contains(lane)).cloned();
    let all = own.iter().map(|endpoint| (endpoint.clone(), priority_of(endpoint)));
    let all = all.chain(others.map(|(lane, priority)| (lane, Some(priority))));
    let candidate = |(endpoint, priority): (ProfileEndpoint, Option<i16>)| {
        let ior = Ior { type_id: String::new(), profiles: vec![alone(profile, &endpoint).ok()?] };
        let priority = priority.filter(|priority| *priority >= 0);
        Some(Candidate { profile: number, version: profile.version, endpoint, priority, ior })
    };
    all.filter_map(candidate).collect()
}

fn alone(profile: &Profile<'_>, endpoint: &ProfileEndpoint) -> Result<TaggedProfile, CdrError> {
    let left_out = [
        component_tag::ALTERNATE_IIOP_ADDRESS,
        component_tag::OMNIORB_UNIX_TRANSPORT,
        component_tag::TAO_ENDPOINTS,
        component_tag::LANE_ENDPOINTS,
        component_tag::POLICIES,
    ];
    let kept = profile.components.iter().filter(|(tag, _)| !left_out.contains(tag));
    let kept: Vec<TaggedComponent> = kept.map(|(tag, data)| TaggedComponent { tag, data: data.to_vec() }).collect();
    TaggedProfile::encode(profile.version, endpoint.as_address(), profile.object_key, &kept)
}

impl Candidate {
    pub(crate) fn address(&self) -> String {
        printable(&self.endpoint.to_string())
    }

    pub(crate) fn address_and_lane(&self) -> String {
        let lane = self.priority.map_or(String::new(), |priority| format!(", lane of priority {priority}"));
        format!("{}{lane}", self.address())
    }

    pub(crate) fn to_json(&self) -> Json {
        json!({
            "profile": self.profile,
            "endpoint": self.address(),
            "lane_priority": self.priority,
            "version": self.version.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_wire::ior::{ProfileAddress, TaoEndpoint};

    #[test]
    fn each_address_has_a_reference_of_its_own() {
        let lane = |address: &str, port, priority| TaoEndpoint { address: address.into(), port, priority };
        let components = [
            TaggedComponent::tao_endpoints(&[lane("h", Some(1), 5), lane("h", Some(2), 9)]).unwrap(),
            TaggedComponent::alternate_address("::1", 3).unwrap(),
            TaggedComponent::orb_type(7).unwrap(),
        ];
        let inet = ProfileAddress::Inet { host: "h", port: 1 };
        let first = TaggedProfile::encode(Version::GIOP_1_2, inet, b"k", &components).unwrap();
        let shared = ProfileAddress::SharedMemory { host: "m", path: "/a" };
        let components = [TaggedComponent::lane_endpoints(&[lane("/a", None, -1), lane("/b", None, 4)]).unwrap()];
        let second = TaggedProfile::encode(Version::GIOP_1_1, shared, b"j", &components).unwrap();
        let unknown = TaggedProfile { tag: 99, data: vec![0] };
        let pipe = ProfileAddress::Other { scheme: "pipe", address: "x" };
        let components = [TaggedComponent::lane_endpoints(&[lane("x", None, 1), lane("y", None, 2)]).unwrap()];
        let third = TaggedProfile::encode(Version::GIOP_1_2, pipe, b"i", &components).unwrap();
        let found = candidates(&Ior { type_id: "IDL:X:1.0".into(), profiles: vec![first, unknown, second, third] });
        let places: Vec<(usize, String)> = found.iter().map(|one| (one.profile, one.address_and_lane())).collect();
        let expected = [
            (1, "tcp:h:1, lane of priority 5"),
            (1, "tcp:[::1]:3"),
            (1, "tcp:h:2, lane of priority 9"),
            (3, "shm:/a"),
            (3, "shm:/b, lane of priority 4"),
            (4, "pipe:x, lane of priority 1"),
            (4, "pipe:y, lane of priority 2"),
        ];
        assert_eq!(places, expected.map(|(profile, place)| (profile, place.to_owned())));
        for candidate in &found {
            let [profile] = &candidate.ior.profiles[..] else { panic!("{candidate:?}") };
            assert_eq!(profile.parse().unwrap().endpoints(), std::slice::from_ref(&candidate.endpoint));
        }
        assert_eq!(found[2].ior.profiles[0].parse().unwrap().orb_type(), Some(7));
    }
}
