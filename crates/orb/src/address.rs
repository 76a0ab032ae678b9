//! Conversions between references on the wire and endpoints of transports.

use std::os::unix::fs::MetadataExt;

use corelane_net::Endpoint;
use corelane_sched::PriorityModel;
use corelane_wire::codeset::{CodeSetInfo, negotiate};
use corelane_wire::giop;
use corelane_wire::ior::{
    self, Ior, Profile, ProfileAddress, TaggedComponent, TaggedProfile, TaoEndpoint, component_tag, profile_tag,
};
use corelane_wire::rt::{PriorityModelValue, parse_bands, parse_protocols, policy_type};
use corelane_wire::{CdrError, CharSet, CodeSets, Limits, Version, WideOrder};

use crate::rt::Protocol;
use crate::rt::client_policies::ProfilePolicies;

/// The TCP address that omniORB writes, and expects, in references to a server without a TCP
/// address.
const NO_TCP_ADDRESS: (&str, u16) = ("255.255.255.255", 65535);

/// A decoded profile.
pub(crate) struct ParsedProfile {
    /// Endpoints of the server, in the order to try.
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) object_key: Vec<u8>,
    pub(crate) version: Version,
    /// The code sets to announce on a new connection.
    pub(crate) code_sets: Option<CodeSets>,
    /// The code sets in force if none are announced.
    pub(crate) default_code_sets: CodeSets,
    /// Index of the profile in its reference.
    pub(crate) index: u32,
    /// True if the server is a Corelane ORB.
    pub(crate) is_ours: bool,
    /// The profile's policies on priorities, bands and protocols.
    pub(crate) policies: ProfilePolicies,
    /// The endpoints of lanes.
    pub(crate) lanes: Vec<LaneEndpoint>,
}

/// Returns the profiles of `ior` that can be decoded, in the order of the reference.
pub(crate) fn parse_profiles(ior: &Ior, highest: Version, native: CharSet, limits: &Limits) -> Vec<ParsedProfile> {
    let parsed = ior.profiles.iter().zip(0..).filter_map(|(TaggedProfile { tag, data }, index)| {
        let profile = Profile::parse(*tag, data, limits).ok()?;
        Some(parse_profile(&profile, highest, native, limits, index))
    });
    parsed.collect()
}

fn parse_profile(
    profile: &Profile<'_>,
    highest: Version,
    native: CharSet,
    limits: &Limits,
    index: u32,
) -> ParsedProfile {
    let version = profile.version.min(highest);
    let info = profile.components.find(component_tag::CODE_SETS).and_then(|data| CodeSetInfo::parse(data).ok());
    let code_sets = info.as_ref().filter(|_| version.has_code_sets()).and_then(|info| choose_code_sets(native, info));
    let default_code_sets = if version.has_code_sets() { CodeSets::LATIN1_UTF16 } else { CodeSets::DEFAULT };
    let endpoints = profile.endpoints().into_iter().filter_map(to_net_endpoint).collect();
    let (policies, lanes) = (profile_policies(profile, limits), lane_endpoints(profile, limits));
    ParsedProfile {
        endpoints,
        object_key: profile.object_key.to_vec(),
        version,
        code_sets,
        default_code_sets,
        index,
        is_ours: profile.orb_type() == Some(ior::orb_type_id::CORELANE),
        policies,
        lanes,
    }
}

/// Returns the policies of a profile. Policies that do not decode are ignored.
fn profile_policies(profile: &Profile<'_>, limits: &Limits) -> ProfilePolicies {
    let mut found = ProfilePolicies::default();
    let policies = profile.components.find(component_tag::POLICIES).map(|data| ior::policies(data, limits));
    let Some(Ok(policies)) = policies else { return found };
    if let Some(Ok(value)) = policies.find(policy_type::PRIORITY_MODEL).map(PriorityModelValue::parse) {
        found.model = PriorityModel::from_number(value.model).map(|model| (model, value.server_priority));
    }
    if let Some(Ok(bands)) = policies.find(policy_type::PRIORITY_BANDED_CONNECTION).map(parse_bands) {
        found.bands = bands;
    }
    let protocols = policies.find(policy_type::CLIENT_PROTOCOL).map(|value| parse_protocols(value, limits));
    if let Some(Ok(protocols)) = protocols {
        found.protocols = protocols.into_iter().map(Protocol::from_value).collect();
    }
    found
}

/// Returns the endpoints of lanes in a profile, from TAO's component or ours.
fn lane_endpoints(profile: &Profile<'_>, limits: &Limits) -> Vec<LaneEndpoint> {
    let data = profile
        .components
        .find(component_tag::TAO_ENDPOINTS)
        .or_else(|| profile.components.find(component_tag::LANE_ENDPOINTS));
    let Some(Ok(found)) = data.map(|data| TaoEndpoint::parse_all(profile.tag, data, limits)) else { return Vec::new() };
    let lane = |found: TaoEndpoint| LaneEndpoint {
        endpoint: match found.port {
            Some(port) => Endpoint::tcp(found.address, port),
            None if profile.tag == profile_tag::SHARED_MEMORY => Endpoint::shared_memory(found.address),
            None => Endpoint::unix(found.address),
        },
        priority: found.priority,
    };
    found.into_iter().map(lane).collect()
}

/// Chooses the native set if the server supports it. UTF-8 is the default and needs no conversion.
/// Otherwise follows the specification's algorithm.
fn choose_code_sets(native: CharSet, server: &CodeSetInfo) -> Option<CodeSets> {
    let mut own = CodeSetInfo::for_native(native);
    let conversion = std::mem::take(&mut own.char.conversion);
    negotiate(&own, server, WideOrder::Standard)
        .or_else(|_| {
            own.char.conversion = conversion;
            negotiate(&own, server, WideOrder::Standard)
        })
        .ok()
}

/// Converts an endpoint to one that this process can use. A Unix socket is usable only on its own
/// host, shared memory only if both processes see the same file system.
fn to_net_endpoint(found: ior::ProfileEndpoint) -> Option<Endpoint> {
    match found {
        ior::ProfileEndpoint::Inet { host, port } => Some(Endpoint::tcp(host, port)),
        ior::ProfileEndpoint::Unix { host: Some(host), .. } if host != host_name() => None,
        ior::ProfileEndpoint::Unix { path, .. } => Some(Endpoint::unix(path)),
        ior::ProfileEndpoint::SharedMemory { host, path } => {
            host_identity().is_some_and(|own| own == host).then(|| Endpoint::shared_memory(path))
        }
    }
}

/// Returns this machine's name; empty if the machine has none.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// Returns an identity of this boot of the kernel and of the file system that this process sees.
/// Names of machines are not enough, because two machines may have the same name. Nor are paths: in
/// another container the same path can belong to another server.
fn host_identity() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let mounts = std::fs::metadata("/proc/self/ns/mnt").ok()?;
    Some(format!("{}/{}", boot.trim(), mounts.ino()))
}

/// An endpoint of a lane, and the priority that references give it (-1: none).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneEndpoint {
    pub(crate) endpoint: Endpoint,
    pub(crate) priority: i16,
}

/// Makes a reference to an object of a real-time POA. The reference has one profile for each kind
/// of address, in the order of `lanes`. A component of the profile lists the endpoints of all lanes
/// of this kind; the first one is the profile's own address. Each profile holds the policies.
pub(crate) fn make_rt_ior(
    type_id: &str,
    lanes: &[LaneEndpoint],
    policies: &[(u32, Vec<u8>)],
    version: Version,
    native: CharSet,
    key: &[u8],
) -> Result<Ior, CdrError> {
    let mut tcp = Vec::new();
    let mut unix = Vec::new();
    let mut shared = Vec::new();
    for LaneEndpoint { endpoint, priority } in lanes {
        match endpoint {
            Endpoint::SharedMemory { path } => {
                let path = path.to_str().map(str::to_owned);
                shared.extend(path.map(|address| TaoEndpoint { address, port: None, priority: *priority }));
            }
            Endpoint::Tcp { host, port } => {
                tcp.push(TaoEndpoint { address: host.clone(), port: Some(*port), priority: *priority });
            }
            Endpoint::Unix { path } => {
                let path = path.to_str().map(str::to_owned);
                unix.extend(path.map(|address| TaoEndpoint { address, port: None, priority: *priority }));
            }
            _ => {}
        }
    }
    let common = [
        TaggedComponent::orb_type(ior::orb_type_id::CORELANE)?,
        TaggedComponent::code_sets(&CodeSetInfo::for_native(native))?,
    ];
    let with = |component| -> Result<Vec<TaggedComponent>, CdrError> {
        let mut components = [&common[..], &[component]].concat();
        if !policies.is_empty() {
            components.push(TaggedComponent::policies(policies)?);
        }
        Ok(components)
    };
    // The position of the first lane of each kind, which orders the profiles.
    let place = |kind: fn(&Endpoint) -> bool| lanes.iter().position(|lane| kind(&lane.endpoint));
    let mut profiles: Vec<(Option<usize>, TaggedProfile)> = Vec::new();
    let mut enter = |place, profile| {
        let at = profiles.partition_point(|(other, _)| *other <= place);
        profiles.insert(at, (place, profile));
    };
    if let (Some(first), Some(host)) = (shared.first(), host_identity()) {
        let components = with(TaggedComponent::lane_endpoints(&shared)?)?;
        let address = ProfileAddress::SharedMemory { host: &host, path: &first.address };
        let place = place(|endpoint| matches!(endpoint, Endpoint::SharedMemory { .. }));
        enter(place, TaggedProfile::of(version, address, key, &components)?);
    }
    if let Some(first) = unix.first() {
        let (host, components) = (host_name(), with(TaggedComponent::lane_endpoints(&unix)?)?);
        let address = ProfileAddress::Unix { host: &host, path: &first.address };
        let place = place(|endpoint| matches!(endpoint, Endpoint::Unix { .. }));
        enter(place, TaggedProfile::of(version, address, key, &components)?);
    }
    if let Some((first, port)) = tcp.first().and_then(|first| Some((first, first.port?))) {
        let components = with(TaggedComponent::tao_endpoints(&tcp)?)?;
        let profile =
            TaggedProfile::of(version, ProfileAddress::Inet { host: &first.address, port }, key, &components)?;
        enter(place(|endpoint| matches!(endpoint, Endpoint::Tcp { .. })), profile);
    }
    let profiles = profiles.into_iter().map(|(_, profile)| profile).collect();
    Ok(Ior { type_id: type_id.to_owned(), profiles })
}

/// Makes a reference to an object of this ORB, with profiles for each kind of address. Shared
/// memory and Unix sockets come first, because they are faster for clients that can use them.
pub(crate) fn make_ior(
    type_id: &str,
    endpoints: &[Endpoint],
    version: Version,
    native: CharSet,
    key: &[u8],
) -> Result<Ior, CdrError> {
    let mut tcp = Vec::new();
    let mut unix = Vec::new();
    let mut shared = Vec::new();
    for endpoint in endpoints {
        match endpoint {
            Endpoint::SharedMemory { path } => shared.extend(path.to_str()),
            Endpoint::Tcp { host, port } => tcp.push((host.as_str(), *port)),
            Endpoint::Unix { path } => unix.extend(path.to_str()),
            _ => {}
        }
    }
    let host = if unix.is_empty() { String::new() } else { host_name() };
    let common = [
        TaggedComponent::orb_type(ior::orb_type_id::CORELANE)?,
        TaggedComponent::code_sets(&CodeSetInfo::for_native(native))?,
    ];
    let mut profiles = Vec::new();
    if let Some(host) = (!shared.is_empty()).then(host_identity).flatten() {
        for path in shared {
            profiles.push(TaggedProfile::of(
                version,
                ProfileAddress::SharedMemory { host: &host, path },
                key,
                &common,
            )?);
        }
    }
    for path in &unix {
        profiles.push(TaggedProfile::of(version, ProfileAddress::Unix { host: &host, path }, key, &common)?);
    }
    let mut components = common.to_vec();
    for path in &unix {
        components.push(TaggedComponent::unix_transport(&host, path)?);
    }
    let (first, others) = tcp.split_first().map_or((NO_TCP_ADDRESS, &[][..]), |(first, others)| (*first, others));
    for (host, port) in others {
        components.push(TaggedComponent::alternate_address(host, *port)?);
    }
    profiles.push(TaggedProfile::of(version, ProfileAddress::Inet { host: first.0, port: first.1 }, key, &components)?);
    Ok(Ior { type_id: type_id.to_owned(), profiles })
}

/// Returns the object key from a request's target: a key, a profile or a whole reference.
#[cold]
pub(crate) fn key_in_profile<'m>(target: &giop::Target<'m>, limits: &Limits) -> Option<&'m [u8]> {
    match target {
        giop::Target::Key(key) => Some(key),
        giop::Target::Profile { tag, data } | giop::Target::Reference { tag, data, .. } => {
            Profile::parse(*tag, data, limits).ok().map(|profile| profile.object_key)
        }
    }
}

#[cfg(test)]
mod tests {
    use corelane_wire::rt;

    use super::*;

    #[test]
    fn ior_profiles_yield_its_endpoints() {
        let endpoints = [Endpoint::tcp("10.0.0.1", 4000), Endpoint::unix("/run/orb"), Endpoint::tcp("::1", 4001)];
        let ior = make_ior("IDL:T:1.0", &endpoints, Version::GIOP_1_2, CharSet::Utf8, b"key").unwrap();
        let found = parse_profiles(&ior, Version::GIOP_1_2, CharSet::Utf8, &Limits::DEFAULT);
        assert_eq!(found[0].endpoints, [Endpoint::unix("/run/orb")]);
        assert_eq!(found[1].endpoints[0], Endpoint::tcp("10.0.0.1", 4000));
        assert!(found[1].endpoints.contains(&Endpoint::tcp("::1", 4001)));
        assert!(found.iter().all(|found| found.object_key == b"key" && found.version == Version::GIOP_1_2));
        assert_eq!(found[1].code_sets, Some(CodeSets::UTF8_UTF16));
    }

    #[test]
    fn shared_memory_profile_is_first_and_ignored_on_other_hosts() {
        let endpoints = [Endpoint::tcp("h", 1), Endpoint::unix("/u"), Endpoint::shared_memory("/s")];
        let mut ior = make_ior("IDL:T:1.0", &endpoints, Version::GIOP_1_2, CharSet::Utf8, b"key").unwrap();
        let found = parse_profiles(&ior, Version::GIOP_1_2, CharSet::Utf8, &Limits::DEFAULT);
        assert_eq!(found[0].endpoints, [Endpoint::shared_memory("/s")]);
        let [_, unix, shared] = endpoints.map(|endpoint| LaneEndpoint { endpoint, priority: 7 });
        let lanes = make_rt_ior("IDL:T:1.0", &[shared, unix], &[], Version::GIOP_1_2, CharSet::Utf8, b"key").unwrap();
        let few = Limits { max_lane_endpoints: 0, ..Limits::DEFAULT };
        assert!(parse_profiles(&lanes, Version::GIOP_1_2, CharSet::Utf8, &few)[0].lanes.is_empty());
        let lanes = parse_profiles(&lanes, Version::GIOP_1_2, CharSet::Utf8, &Limits::DEFAULT);
        assert_eq!(lanes[0].lanes[0].endpoint, Endpoint::shared_memory("/s"));
        let elsewhere = ProfileAddress::SharedMemory { host: "another boot", path: "/s" };
        ior.profiles[0] = TaggedProfile::of(Version::GIOP_1_2, elsewhere, b"key", &[]).unwrap();
        assert!(parse_profiles(&ior, Version::GIOP_1_2, CharSet::Utf8, &Limits::DEFAULT)[0].endpoints.is_empty());
    }

    #[test]
    fn lists_in_a_profile_are_as_long_as_the_configured_limits_allow() {
        let protocols = rt::encode_protocols(&[rt::ProtocolValue::SharedMemory; 3]).unwrap();
        let policies = [(7, vec![0]), (7, vec![0]), (policy_type::CLIENT_PROTOCOL, protocols)];
        let components = vec![TaggedComponent::policies(&policies).unwrap(); 3];
        let address = ProfileAddress::Inet { host: "h", port: 1 };
        let profile = TaggedProfile::of(Version::GIOP_1_2, address, b"key", &components).unwrap();
        let ior = Ior { type_id: String::new(), profiles: vec![profile] };
        // Returns the number of protocols that the policies name; `None` if the profile does not
        // decode.
        let found = |max_components, max_profiles| {
            let limits = Limits { max_components, max_profiles, ..Limits::DEFAULT };
            let parsed = parse_profiles(&ior, Version::GIOP_1_2, CharSet::Utf8, &limits);
            parsed.first().map(|profile| profile.policies.protocols.len())
        };
        assert_eq!([found(3, 3), found(3, 2), found(2, 3)], [Some(3), Some(0), None]);
    }

    #[test]
    fn giop_1_0_client_negotiates_no_code_sets() {
        let ior = make_ior("IDL:T:1.0", &[Endpoint::tcp("h", 1)], Version::GIOP_1_2, CharSet::Utf8, b"key").unwrap();
        let found = &parse_profiles(&ior, Version::GIOP_1_0, CharSet::Utf8, &Limits::DEFAULT)[0];
        assert_eq!(
            (found.version, found.code_sets, found.default_code_sets),
            (Version::GIOP_1_0, None, CodeSets::DEFAULT)
        );
    }

    #[test]
    fn native_code_set_is_published_and_preferred() {
        let of = |server, client| {
            let ior = make_ior("IDL:T:1.0", &[Endpoint::tcp("h", 1)], Version::GIOP_1_2, server, b"key").unwrap();
            parse_profiles(&ior, Version::GIOP_1_2, client, &Limits::DEFAULT)[0].code_sets
        };
        assert_eq!(of(CharSet::Latin1, CharSet::Utf8), Some(CodeSets::UTF8_UTF16));
        assert_eq!(of(CharSet::Utf8, CharSet::Latin1), Some(CodeSets::LATIN1_UTF16));
        assert_eq!(of(CharSet::Latin1, CharSet::Latin1), Some(CodeSets::LATIN1_UTF16));
    }
}
