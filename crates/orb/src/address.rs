//! Between references on the wire and endpoints of transports.

use std::os::unix::fs::MetadataExt;

use corelane_net::Endpoint;
use corelane_sched::PriorityModel;
use corelane_wire::codeset::{CodeSetInfo, negotiate};
use corelane_wire::exception::minor;
use corelane_wire::giop;
use corelane_wire::ior::{
    self, Address, Corbaloc, Ior, ObjectUrl, Profile, TaggedComponent, TaggedProfile, TaoEndpoint, UrlError,
    component_tag, profile_tag,
};
use corelane_wire::rt::{PriorityModelValue, parse_bands, parse_protocols, policy_type};
use corelane_wire::{CdrError, CharSet, CodeSets, Limits, Version, WideOrder};

use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::rt::Protocol;
use crate::rt::client::Said;

/// What omniORB writes, and expects, as the TCP address of a server that has none.
const NO_TCP: (&str, u16) = ("255.255.255.255", 65535);

/// A profile taken apart.
pub(crate) struct Found {
    /// Where the server can be reached, in the order to try.
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) object_key: Vec<u8>,
    pub(crate) version: Version,
    /// What to announce on a new connection.
    pub(crate) code_sets: Option<CodeSets>,
    /// What holds where nothing is announced.
    pub(crate) default_code_sets: CodeSets,
    /// Which profile of the reference it is.
    pub(crate) index: u32,
    /// The server is an ORB of this kind.
    pub(crate) is_ours: bool,
    /// What it says of priorities.
    pub(crate) said: Said,
    /// The endpoints of lanes.
    pub(crate) lanes: Vec<LaneEndpoint>,
}

/// The profiles of `ior` that are understood and lead somewhere, in its order.
pub(crate) fn profiles(ior: &Ior, highest: Version, native: CharSet) -> Vec<Found> {
    let parsed = ior.profiles.iter().zip(0..).filter_map(|(profile, index)| Some((profile.parse().ok()?, index)));
    parsed.map(|(profile, index)| found(&profile, highest, native, index)).collect()
}

fn found(profile: &Profile<'_>, highest: Version, native: CharSet, index: u32) -> Found {
    let version = profile.version.min(highest);
    let info = profile.components.find(component_tag::CODE_SETS).and_then(|data| CodeSetInfo::parse(data).ok());
    let code_sets =
        if version == Version::GIOP_1_0 { None } else { info.as_ref().and_then(|info| choose(native, info)) };
    let default_code_sets = if version == Version::GIOP_1_0 { CodeSets::DEFAULT } else { CodeSets::LATIN1_UTF16 };
    let endpoints = profile.endpoints().into_iter().filter_map(endpoint).collect();
    let (said, lanes) = (said(profile), lanes(profile));
    Found {
        endpoints,
        object_key: profile.object_key.to_vec(),
        version,
        code_sets,
        default_code_sets,
        index,
        is_ours: profile.orb_type() == Some(ior::orb_type_id::CORELANE),
        said,
        lanes,
    }
}

/// What a profile says of priorities. Policies that do not decode say nothing.
fn said(profile: &Profile<'_>) -> Said {
    let mut said = Said::default();
    let Some(Ok(policies)) = profile.components.find(component_tag::POLICIES).map(ior::policies) else { return said };
    if let Some(Ok(value)) = policies.find(policy_type::PRIORITY_MODEL).map(PriorityModelValue::parse) {
        said.model = PriorityModel::from_number(value.model).map(|model| (model, value.server_priority));
    }
    if let Some(Ok(bands)) = policies.find(policy_type::PRIORITY_BANDED_CONNECTION).map(parse_bands) {
        said.bands = bands;
    }
    if let Some(Ok(protocols)) = policies.find(policy_type::CLIENT_PROTOCOL).map(parse_protocols) {
        said.protocols = protocols.into_iter().map(Protocol::of_value).collect();
    }
    said
}

/// The endpoints of lanes in a profile, TAO's or our own.
fn lanes(profile: &Profile<'_>) -> Vec<LaneEndpoint> {
    let data = profile
        .components
        .find(component_tag::TAO_ENDPOINTS)
        .or_else(|| profile.components.find(component_tag::LANE_ENDPOINTS));
    let Some(Ok(found)) = data.map(|data| TaoEndpoint::parse_all(profile.tag, data)) else { return Vec::new() };
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

/// The native set wherever the server has it (UTF-8 by default, in which Rust's strings need no conversion); else by the
/// specification's algorithm.
fn choose(native: CharSet, server: &CodeSetInfo) -> Option<CodeSets> {
    let mut own = CodeSetInfo::own(native);
    let conversion = std::mem::take(&mut own.char.conversion);
    negotiate(&own, server, WideOrder::Standard)
        .or_else(|_| {
            own.char.conversion = conversion;
            negotiate(&own, server, WideOrder::Standard)
        })
        .ok()
}

/// A Unix socket is of use on its own host only, shared memory only where the same file system is seen too.
fn endpoint(found: ior::Endpoint) -> Option<Endpoint> {
    match found {
        ior::Endpoint::Inet { host, port } => Some(Endpoint::tcp(host, port)),
        ior::Endpoint::Unix { host: Some(host), .. } if host != host_name() => None,
        ior::Endpoint::Unix { path, .. } => Some(Endpoint::unix(path)),
        ior::Endpoint::SharedMemory { host, path } => {
            host_identity().is_some_and(|own| own == host).then(|| Endpoint::shared_memory(path))
        }
    }
}

/// This machine's name; empty if it has none.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()).unwrap_or_default()
}

/// What this run of this machine's kernel, and the file system as this process sees it, are told from all others by: names of machines
/// can be equal, and in another container the same path can be another server's.
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

/// A reference to an object of a real-time POA: a profile for each kind of address, in the order of `lanes`, with every lane's endpoint
/// of this kind in a component; the profile's own is the first one. The policies stand in each profile.
pub(crate) fn rt_reference(
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
        TaggedComponent::code_sets(&CodeSetInfo::own(native))?,
    ];
    let with = |component| -> Result<Vec<TaggedComponent>, CdrError> {
        let mut components = [&common[..], &[component]].concat();
        if !policies.is_empty() {
            components.push(TaggedComponent::policies(policies)?);
        }
        Ok(components)
    };
    // Of each kind the place of its first lane: the profiles are in that order.
    let place = |kind: fn(&Endpoint) -> bool| lanes.iter().position(|lane| kind(&lane.endpoint));
    let mut profiles: Vec<(Option<usize>, TaggedProfile)> = Vec::new();
    let mut enter = |place, profile| {
        let at = profiles.partition_point(|(other, _)| *other <= place);
        profiles.insert(at, (place, profile));
    };
    if let (Some(first), Some(host)) = (shared.first(), host_identity()) {
        let components = with(TaggedComponent::lane_endpoints(&shared)?)?;
        let address = Address::SharedMemory { host: &host, path: &first.address };
        let place = place(|endpoint| matches!(endpoint, Endpoint::SharedMemory { .. }));
        enter(place, TaggedProfile::of(version, address, key, &components)?);
    }
    if let Some(first) = unix.first() {
        let (host, components) = (host_name(), with(TaggedComponent::lane_endpoints(&unix)?)?);
        let address = Address::Unix { host: &host, path: &first.address };
        let place = place(|endpoint| matches!(endpoint, Endpoint::Unix { .. }));
        enter(place, TaggedProfile::of(version, address, key, &components)?);
    }
    if let Some((first, port)) = tcp.first().and_then(|first| Some((first, first.port?))) {
        let components = with(TaggedComponent::tao_endpoints(&tcp)?)?;
        let profile = TaggedProfile::of(version, Address::Inet { host: &first.address, port }, key, &components)?;
        enter(place(|endpoint| matches!(endpoint, Endpoint::Tcp { .. })), profile);
    }
    let profiles = profiles.into_iter().map(|(_, profile)| profile).collect();
    Ok(Ior { type_id: type_id.to_owned(), profiles })
}

/// A reference to an object of this ORB: a profile for each kind of address, shared memory and Unix sockets first, because they are the
/// faster ways for whoever can use them.
pub(crate) fn reference(
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
        TaggedComponent::code_sets(&CodeSetInfo::own(native))?,
    ];
    let mut profiles = Vec::new();
    if let Some(host) = (!shared.is_empty()).then(host_identity).flatten() {
        for path in shared {
            profiles.push(TaggedProfile::of(version, Address::SharedMemory { host: &host, path }, key, &common)?);
        }
    }
    for path in &unix {
        profiles.push(TaggedProfile::of(version, Address::Unix { host: &host, path }, key, &common)?);
    }
    let mut components = common.to_vec();
    for path in &unix {
        components.push(TaggedComponent::unix_transport(&host, path)?);
    }
    let (first, others) = tcp.split_first().map_or((NO_TCP, &[][..]), |(first, others)| (*first, others));
    for (host, port) in others {
        components.push(TaggedComponent::alternate_address(host, *port)?);
    }
    profiles.push(TaggedProfile::of(version, Address::Inet { host: first.0, port: first.1 }, key, &components)?);
    Ok(Ior { type_id: type_id.to_owned(), profiles })
}

/// A reference from its text; the inner error is the name of an initial reference, which only the ORB can resolve.
pub(crate) fn parse(text: &str, limits: &Limits) -> Result<Result<Ior, String>, SystemException> {
    match ObjectUrl::parse(text, limits).map_err(|error| bad_text(text, error))? {
        ObjectUrl::Ior(ior) => Ok(Ok(ior)),
        ObjectUrl::Corbaloc(corbaloc) => of_corbaloc(&corbaloc),
        _ => Err(SystemException::new(Kind::BadParam, minor::bad_param::URL_OTHER, Completion::No)
            .because("corbaname: needs a naming service; resolve the name with one and use the reference")),
    }
}

fn of_corbaloc(corbaloc: &Corbaloc) -> Result<Result<Ior, String>, SystemException> {
    match corbaloc.initial_reference() {
        Some(name) => Ok(Err(String::from_utf8_lossy(name).into_owned())),
        None => Ok(Ok(corbaloc.to_ior()?)),
    }
}

fn bad_text(text: &str, error: UrlError) -> SystemException {
    let shown: String = text.chars().take(60).collect();
    SystemException::new(error.kind(), error.minor(), Completion::No).because(format!("\"{shown}\": {error}"))
}

/// The object key in the address of a request that carries a profile or a whole reference.
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
    use super::*;

    #[test]
    fn a_reference_leads_back_to_its_endpoints() {
        let endpoints = [Endpoint::tcp("10.0.0.1", 4000), Endpoint::unix("/run/orb"), Endpoint::tcp("::1", 4001)];
        let ior = reference("IDL:T:1.0", &endpoints, Version::GIOP_1_2, CharSet::Utf8, b"key").unwrap();
        let found = profiles(&ior, Version::GIOP_1_2, CharSet::Utf8);
        assert_eq!(found[0].endpoints, [Endpoint::unix("/run/orb")]);
        assert_eq!(found[1].endpoints[0], Endpoint::tcp("10.0.0.1", 4000));
        assert!(found[1].endpoints.contains(&Endpoint::tcp("::1", 4001)));
        assert!(found.iter().all(|found| found.object_key == b"key" && found.version == Version::GIOP_1_2));
        assert_eq!(found[1].code_sets, Some(CodeSets::UTF8_UTF16));
    }

    #[test]
    fn shared_memory_comes_first_and_leads_nowhere_elsewhere() {
        let endpoints = [Endpoint::tcp("h", 1), Endpoint::unix("/u"), Endpoint::shared_memory("/s")];
        let mut ior = reference("IDL:T:1.0", &endpoints, Version::GIOP_1_2, CharSet::Utf8, b"key").unwrap();
        let found = profiles(&ior, Version::GIOP_1_2, CharSet::Utf8);
        assert_eq!(found[0].endpoints, [Endpoint::shared_memory("/s")]);
        let [_, unix, shared] = endpoints.map(|endpoint| LaneEndpoint { endpoint, priority: 7 });
        let lanes = rt_reference("IDL:T:1.0", &[shared, unix], &[], Version::GIOP_1_2, CharSet::Utf8, b"key").unwrap();
        let lanes = profiles(&lanes, Version::GIOP_1_2, CharSet::Utf8);
        assert_eq!(lanes[0].lanes[0].endpoint, Endpoint::shared_memory("/s"));
        let elsewhere = Address::SharedMemory { host: "another boot", path: "/s" };
        ior.profiles[0] = TaggedProfile::of(Version::GIOP_1_2, elsewhere, b"key", &[]).unwrap();
        assert!(profiles(&ior, Version::GIOP_1_2, CharSet::Utf8)[0].endpoints.is_empty());
    }

    #[test]
    fn a_client_of_giop_1_0_negotiates_nothing() {
        let ior = reference("IDL:T:1.0", &[Endpoint::tcp("h", 1)], Version::GIOP_1_2, CharSet::Utf8, b"key").unwrap();
        let found = &profiles(&ior, Version::GIOP_1_0, CharSet::Utf8)[0];
        assert_eq!(
            (found.version, found.code_sets, found.default_code_sets),
            (Version::GIOP_1_0, None, CodeSets::DEFAULT)
        );
    }

    #[test]
    fn the_native_code_set_is_what_is_published_and_preferred() {
        let of = |server, client| {
            let ior = reference("IDL:T:1.0", &[Endpoint::tcp("h", 1)], Version::GIOP_1_2, server, b"key").unwrap();
            profiles(&ior, Version::GIOP_1_2, client)[0].code_sets
        };
        assert_eq!(of(CharSet::Latin1, CharSet::Utf8), Some(CodeSets::UTF8_UTF16));
        assert_eq!(of(CharSet::Utf8, CharSet::Latin1), Some(CodeSets::LATIN1_UTF16));
        assert_eq!(of(CharSet::Latin1, CharSet::Latin1), Some(CodeSets::LATIN1_UTF16));
    }

    #[test]
    fn texts_that_are_no_references_say_why() {
        let refused = |text: &str| parse(text, &Limits::DEFAULT).unwrap_err();
        assert_eq!(refused("nonsense").kind(), Kind::BadParam);
        assert!(refused("nonsense").to_string().contains("nonsense"));
        assert_eq!(parse("corbaloc:rir:/NameService", &Limits::DEFAULT).unwrap().unwrap_err(), "NameService");
    }
}
