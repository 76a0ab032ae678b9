//! Conversions between profiles of references and endpoints of transports.

use std::cell::OnceCell;
use std::os::unix::fs::MetadataExt;

use corelane_net::Endpoint;
use corelane_sched::PriorityModel;
use corelane_wire::codeset::{CodeSetInfo, negotiate};
use corelane_wire::giop;
use corelane_wire::ior::{
    self, Ior, Profile, ProfileAddress, ProfileEndpoint, TaggedComponent, TaggedProfile, TaoEndpoint, component_tag,
};
use corelane_wire::rt::{PriorityModelValue, parse_priority_bands, parse_protocols, policy_type};
use corelane_wire::{CdrError, CharSet, CodeSets, Limits, Version, WideByteOrder};

use crate::rt::Protocol;
use crate::rt::client_policies::ProfilePolicies;

/// The address in the TCP profile of a server that does not listen on TCP, as in references of
/// omniORB.
const NO_TCP_ADDRESS: (&str, u16) = ("255.255.255.255", 65535);

pub(crate) struct ParsedProfile {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) object_key: Vec<u8>,
    pub(crate) version: Version,
    pub(crate) code_sets: Option<CodeSets>,
    pub(crate) default_code_sets: CodeSets,
    pub(crate) index: u32,
    pub(crate) is_ours: bool,
    pub(crate) policies: ProfilePolicies,
    pub(crate) lanes: Vec<LaneEndpoint>,
}

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
    let endpoints = profile.endpoints().into_iter().filter(is_visible_here).filter_map(to_net_endpoint).collect();
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

fn profile_policies(profile: &Profile<'_>, limits: &Limits) -> ProfilePolicies {
    let mut found = ProfilePolicies::default();
    let policies = profile.components.find(component_tag::POLICIES).map(|data| ior::parse_policies(data, limits));
    let Some(Ok(policies)) = policies else { return found };
    if let Some(Ok(value)) = policies.find(policy_type::PRIORITY_MODEL).map(PriorityModelValue::parse) {
        found.model = PriorityModel::from_number(value.model).map(|model| (model, value.server_priority));
    }
    if let Some(Ok(bands)) = policies.find(policy_type::PRIORITY_BANDED_CONNECTION).map(parse_priority_bands) {
        found.bands = bands;
    }
    let protocols = policies.find(policy_type::CLIENT_PROTOCOL).map(|value| parse_protocols(value, limits));
    if let Some(Ok(protocols)) = protocols {
        found.protocols = protocols.into_iter().map(Protocol::from_value).collect();
    }
    found
}

fn lane_endpoints(profile: &Profile<'_>, limits: &Limits) -> Vec<LaneEndpoint> {
    let lane = |(endpoint, priority)| Some(LaneEndpoint { endpoint: to_net_endpoint(endpoint)?, priority });
    profile.lane_endpoints(limits).into_iter().filter_map(lane).collect()
}

/// Chooses the code sets for calls to a server; `None` if client and server have none in common.
/// Prefers the native code set, so that the client need not convert text.
fn choose_code_sets(native: CharSet, server: &CodeSetInfo) -> Option<CodeSets> {
    let mut own = CodeSetInfo::for_native(native);
    let conversion = std::mem::take(&mut own.char.conversion);
    negotiate(&own, server, WideByteOrder::SpecifiedOrder)
        .or_else(|_| {
            own.char.conversion = conversion;
            negotiate(&own, server, WideByteOrder::SpecifiedOrder)
        })
        .ok()
}

fn is_visible_here(found: &ProfileEndpoint) -> bool {
    match found {
        ProfileEndpoint::Unix { host: Some(host), .. } => *host == host_name(),
        ProfileEndpoint::SharedMemory { host, .. } => host_identity().is_some_and(|own| own == *host),
        _ => true,
    }
}

fn to_net_endpoint(found: ProfileEndpoint) -> Option<Endpoint> {
    Some(match found {
        ProfileEndpoint::Inet { host, port } => Endpoint::tcp(host, port),
        ProfileEndpoint::Unix { path, .. } => Endpoint::unix(path),
        ProfileEndpoint::SharedMemory { path, .. } => Endpoint::shared_memory(path),
        ProfileEndpoint::Other { scheme, address } => return Endpoint::other(&scheme, &address),
    })
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// Returns a text that identifies this boot of the kernel and this process's mount namespace;
/// `None` if /proc does not tell them. Host names are not enough, because two machines may have the
/// same name.
fn host_identity() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let mounts = std::fs::metadata("/proc/self/ns/mnt").ok()?;
    Some(format!("{}/{}", boot.trim(), mounts.ino()))
}

/// An endpoint of a lane, with its priority in references (-1: none).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneEndpoint {
    pub(crate) endpoint: Endpoint,
    pub(crate) priority: i16,
}

#[derive(Default)]
struct ThisMachine {
    name: OnceCell<String>,
    identity: OnceCell<Option<String>>,
}

impl ThisMachine {
    fn profile_address<'e>(&'e self, endpoint: &'e Endpoint) -> Option<ProfileAddress<'e>> {
        Some(match endpoint {
            Endpoint::Tcp { host, port } => ProfileAddress::Inet { host, port: *port },
            Endpoint::Unix { path } => {
                ProfileAddress::Unix { host: self.name.get_or_init(host_name), path: path.to_str()? }
            }
            Endpoint::SharedMemory { path } => {
                let host = self.identity.get_or_init(host_identity).as_deref()?;
                ProfileAddress::SharedMemory { host, path: path.to_str()? }
            }
            Endpoint::Other(other) => ProfileAddress::Other { scheme: other.scheme(), address: other.address() },
            _ => return None,
        })
    }
}

fn common_components(native: CharSet) -> Result<[TaggedComponent; 2], CdrError> {
    Ok([
        TaggedComponent::orb_type(ior::orb_type_id::CORELANE)?,
        TaggedComponent::code_sets(&CodeSetInfo::for_native(native))?,
    ])
}

/// Makes a reference with one profile for each kind of address. The kinds have the order in which
/// they first appear in `lanes`.
pub(crate) fn make_rt_ior(
    type_id: &str,
    lanes: &[LaneEndpoint],
    policies: &[(u32, Vec<u8>)],
    version: Version,
    native: CharSet,
    key: &[u8],
) -> Result<Ior, CdrError> {
    let machine = ThisMachine::default();
    let mut kinds: Vec<(ProfileAddress<'_>, Vec<TaoEndpoint>)> = Vec::new();
    for LaneEndpoint { endpoint, priority } in lanes {
        let Some(address) = machine.profile_address(endpoint) else { continue };
        let (own, port) = match address {
            ProfileAddress::Inet { host, port } => (host, Some(port)),
            ProfileAddress::Unix { path, .. }
            | ProfileAddress::SharedMemory { path, .. }
            | ProfileAddress::Uiop { path } => (path, None),
            ProfileAddress::Other { address, .. } => (address, None),
        };
        let lane = TaoEndpoint { address: own.to_owned(), port, priority: *priority };
        match kinds.iter_mut().find(|(first, _)| is_same_kind(first, &address)) {
            Some((_, list)) => list.push(lane),
            None => kinds.push((address, vec![lane])),
        }
    }
    let common = common_components(native)?;
    let mut profiles = Vec::new();
    for (address, list) in kinds {
        let mut components = common.to_vec();
        components.push(match address {
            ProfileAddress::Inet { .. } => TaggedComponent::tao_endpoints(&list)?,
            _ => TaggedComponent::lane_endpoints(&list)?,
        });
        if !policies.is_empty() {
            components.push(TaggedComponent::policies(policies)?);
        }
        profiles.push(TaggedProfile::encode(version, address, key, &components)?);
    }
    Ok(Ior { type_id: type_id.to_owned(), profiles })
}

fn is_same_kind(one: &ProfileAddress<'_>, other: &ProfileAddress<'_>) -> bool {
    match (one, other) {
        (ProfileAddress::Other { scheme: one, .. }, ProfileAddress::Other { scheme: other, .. }) => one == other,
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

/// Makes a reference with the profiles in this order: shared memory, Unix sockets, added
/// transports, TCP. All TCP addresses share one profile, which the reference has even without a TCP
/// address.
pub(crate) fn make_ior(
    type_id: &str,
    endpoints: &[Endpoint],
    version: Version,
    native: CharSet,
    key: &[u8],
) -> Result<Ior, CdrError> {
    let machine = ThisMachine::default();
    let common = common_components(native)?;
    let mut profiles = Vec::new();
    let mut components = common.to_vec();
    let mut tcp = None;
    for rank in 0..4 {
        for address in endpoints.iter().filter_map(|endpoint| machine.profile_address(endpoint)) {
            match address {
                ProfileAddress::SharedMemory { .. } if rank == 0 => {}
                ProfileAddress::Unix { host, path } if rank == 1 => {
                    components.push(TaggedComponent::unix_transport(host, path)?);
                }
                ProfileAddress::Other { .. } if rank == 2 => {}
                ProfileAddress::Inet { host, port } if rank == 3 => {
                    match tcp {
                        None => tcp = Some(address),
                        Some(_) => components.push(TaggedComponent::alternate_address(host, port)?),
                    }
                    continue;
                }
                _ => continue,
            }
            profiles.push(TaggedProfile::encode(version, address, key, &common)?);
        }
    }
    let tcp = tcp.unwrap_or(ProfileAddress::Inet { host: NO_TCP_ADDRESS.0, port: NO_TCP_ADDRESS.1 });
    profiles.push(TaggedProfile::encode(version, tcp, key, &components)?);
    Ok(Ior { type_id: type_id.to_owned(), profiles })
}

#[cold]
pub(crate) fn key_in_profile<'m>(target: &giop::TargetAddress<'m>, limits: &Limits) -> Option<&'m [u8]> {
    match target {
        giop::TargetAddress::Key(key) => Some(key),
        giop::TargetAddress::Profile { tag, data } | giop::TargetAddress::Reference { tag, data, .. } => {
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
        ior.profiles[0] = TaggedProfile::encode(Version::GIOP_1_2, elsewhere, b"key", &[]).unwrap();
        assert!(parse_profiles(&ior, Version::GIOP_1_2, CharSet::Utf8, &Limits::DEFAULT)[0].endpoints.is_empty());
    }

    #[test]
    fn profile_with_the_scheme_of_another_kind_of_endpoint_is_unusable() {
        let endpoints = |scheme| {
            let address = ProfileAddress::Other { scheme, address: "h:1" };
            let profile = TaggedProfile::encode(Version::GIOP_1_2, address, b"key", &[]).unwrap();
            let ior = Ior { type_id: String::new(), profiles: vec![profile] };
            parse_profiles(&ior, Version::GIOP_1_2, CharSet::Utf8, &Limits::DEFAULT).remove(0).endpoints
        };
        assert_eq!(endpoints("pipe"), [Endpoint::other("pipe", "h:1").unwrap()]);
        for scheme in ["tcp", "shm", "Pipe", "a:b", ""] {
            assert_eq!(endpoints(scheme), [], "{scheme:?}");
        }
    }

    #[test]
    fn lists_in_a_profile_are_as_long_as_the_configured_limits_allow() {
        let protocols = rt::encode_protocols(&[rt::ProtocolValue::SharedMemory; 3]).unwrap();
        let policies = [(7, vec![0]), (7, vec![0]), (policy_type::CLIENT_PROTOCOL, protocols)];
        let components = vec![TaggedComponent::policies(&policies).unwrap(); 3];
        let address = ProfileAddress::Inet { host: "h", port: 1 };
        let profile = TaggedProfile::encode(Version::GIOP_1_2, address, b"key", &components).unwrap();
        let ior = Ior { type_id: String::new(), profiles: vec![profile] };
        let found = |max_components, max_profiles| {
            let limits = Limits { max_tagged_components: max_components, max_profiles, ..Limits::DEFAULT };
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
