//! A transport that the program adds, with its own address scheme.

use std::path::PathBuf;
use std::sync::Arc;

use corelane::poa::PoaPolicies;
use corelane::rt::{
    LaneConfig, LanesConfig, PriorityModel, Protocol, RtClientPolicies, RtConfig, RtPolicies, SchedulingClass,
    TcpProperties,
};
use corelane::{
    Completion, Dispatch, Endpoint, Orb, OrbBuilder, PoolConfig, SystemExceptionKind as Kind, Transports, Version,
};
use corelane_net::{TcpTransport, Transport};
use corelane_tests::pipe::PipeTransport;
use corelane_tests::real_time::{Reporter, call_who};
use corelane_tests::{EVERY_DISPATCH, ProbeRef, client, serve_with};
use corelane_wire::ior::{Ior, ObjectUrl, ProfileEndpoint, profile_tag};
use corelane_wire::{Limits, exception::minor};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corelane-pipes-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn pipe(&self) -> Arc<PipeTransport> {
        Arc::new(PipeTransport::new(&self.0))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn with(pipe: &Arc<PipeTransport>) -> OrbBuilder {
    let added: Arc<dyn Transport> = pipe.clone();
    Orb::builder().transports(Transports::new(vec![Arc::new(TcpTransport::new()), added]))
}

fn pipe_endpoint(name: &str) -> ProfileEndpoint {
    ProfileEndpoint::Other { scheme: "pipe".into(), address: name.into() }
}

fn addresses(text: &str) -> Vec<(u32, ProfileEndpoint)> {
    let Ok(ObjectUrl::Ior(ior)) = ObjectUrl::parse(text, &Limits::DEFAULT) else { panic!("{text}") };
    let of_profile = |profile: corelane_wire::ior::Profile<'_>| {
        profile.endpoints().into_iter().map(move |endpoint| (profile.tag, endpoint))
    };
    ior.known_profiles().flat_map(of_profile).collect()
}

#[test]
fn calls_work_over_an_added_transport_in_every_architecture() {
    let folder = Folder::new("calls");
    for dispatch in EVERY_DISPATCH {
        let pool = || PoolConfig::default().dispatch(dispatch);
        let server = serve_with(with(&folder.pipe()).pool(pool()).listen("pipe:server"));
        assert_eq!(server.orb.endpoints(), [Endpoint::other("pipe", "server").unwrap()]);
        assert_eq!(addresses(&server.ior), [(profile_tag::OTHER_TRANSPORT, pipe_endpoint("server"))]);
        let pipe = folder.pipe();
        let own = serve_with(with(&pipe).pool(pool()).listen("pipe:client"));
        let probe = ProbeRef::from_object(own.orb.string_to_object(&server.ior).unwrap().unwrap());
        assert_eq!(probe.cube_octet(3).unwrap(), 27, "{dispatch:?}");
        let large = vec![0xa5; 3_000_000];
        assert_eq!(&*probe.mirror(&large).unwrap(), &large[..], "{dispatch:?}");
        assert_eq!(probe.call_back(Some(&own.probe), 3).unwrap(), 3, "{dispatch:?}");
        assert!(pipe.connect_attempts() > 0);
    }
}

#[test]
fn references_of_every_version_carry_the_address() {
    let folder = Folder::new("versions");
    for version in [Version::GIOP_1_0, Version::GIOP_1_1, Version::GIOP_1_2] {
        let server = serve_with(with(&folder.pipe()).giop_version(version).listen("pipe:x"));
        let orb = with(&folder.pipe()).build().unwrap();
        let probe: ProbeRef = orb.string_to_reference(&server.ior).unwrap();
        assert_eq!(probe.cube_octet(3).unwrap(), 27, "{version}");
        assert_eq!(addresses(&probe.as_object().to_string()), addresses(&server.ior));
    }
}

#[test]
fn exception_of_a_client_without_the_transport_names_the_address() {
    let folder = Folder::new("without");
    let server = serve_with(with(&folder.pipe()).listen("pipe:x"));
    let (_orb, probe) = client(&server.ior);
    let refused = probe.cube_octet(3).unwrap_err();
    let expected = (Kind::ImpLimit, minor::imp_limit::NO_USABLE_PROFILE, Completion::No);
    assert_eq!((refused.kind(), refused.minor(), refused.completed()), expected);
    let text = refused.to_string();
    assert!(text.contains("no transport of the ORB can connect from this machine to pipe:x"), "{text}");
    let empty = Ior { type_id: "IDL:test/Probe:1.0".into(), profiles: Vec::new() };
    let (_orb, probe) = client(&empty.to_text().unwrap());
    let text = probe.cube_octet(3).unwrap_err().to_string();
    assert!(text.contains("the reference has no address"), "{text}");
}

#[test]
fn added_transport_is_preferred_to_tcp_and_optional() {
    let folder = Folder::new("both");
    let server = serve_with(with(&folder.pipe()).listen("tcp:127.0.0.1:0").listen("pipe:x"));
    let tags: Vec<u32> = addresses(&server.ior).into_iter().map(|(tag, _)| tag).collect();
    assert_eq!(tags, [profile_tag::OTHER_TRANSPORT, profile_tag::IIOP]);
    let pipe = folder.pipe();
    let orb = with(&pipe).build().unwrap();
    let probe: ProbeRef = orb.string_to_reference(&server.ior).unwrap();
    assert_eq!((probe.cube_octet(3).unwrap(), pipe.connect_attempts()), (27, 1));
    let (_orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
    std::fs::remove_file(folder.0.join("x")).unwrap();
    let orb = with(&folder.pipe()).build().unwrap();
    let probe: ProbeRef = orb.string_to_reference(&server.ior).unwrap();
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
}

#[test]
fn references_contain_the_published_address_of_an_added_transport() {
    let folder = Folder::new("published");
    let server = serve_with(
        with(&folder.pipe()).listen("tcp:127.0.0.1:0").published_address("pipe:gate").published_address("tcp:h:0"),
    );
    let found: Vec<String> = addresses(&server.ior).into_iter().map(|(_, endpoint)| endpoint.to_string()).collect();
    let Endpoint::Tcp { port, .. } = &server.orb.endpoints()[0] else { panic!("no TCP endpoint") };
    assert_eq!(found, ["pipe:gate".to_owned(), format!("tcp:h:{port}")]);
}

#[test]
fn address_with_an_unknown_scheme_is_refused() {
    let folder = Folder::new("unknown");
    for (builder, address) in
        [(Orb::builder(), "pipe:x"), (with(&folder.pipe()), "pip:x"), (with(&folder.pipe()), "Pipe:x")]
    {
        let error = builder.listen(address).build().unwrap_err().to_string();
        assert!(error.contains(&format!("\"{address}\" is not an address: no transport has this scheme")), "{error}");
    }
    let error = Orb::builder().published_address("pipe:x").build().unwrap_err().to_string();
    assert!(error.contains("\"pipe:x\" is not an address: no transport has this scheme"), "{error}");
    let error = with(&folder.pipe()).listen("pipe:a/b").build().unwrap_err().to_string();
    assert!(error.contains("pipe:a/b does not name a pipe"), "{error}");
    let lane = LaneConfig::default().priority(1).listen("pip:x");
    let orb = with(&folder.pipe()).real_time(RtConfig::default().scheduling(SchedulingClass::Fair)).build().unwrap();
    let refused = orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes([lane])).unwrap_err();
    assert!(refused.to_string().contains("no transport has this scheme"), "{refused}");
}

/// Lanes without configured addresses listen at addresses derived from the ORB's address.
#[test]
fn lanes_and_protocol_policies_work_over_an_added_transport() {
    let folder = Folder::new("lanes");
    let fair = || RtConfig::default().scheduling(SchedulingClass::Fair);
    let server = with(&folder.pipe()).real_time(fair()).listen("tcp:127.0.0.1:0").listen("pipe:x");
    let server = server.pool(PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 1 })).build().unwrap();
    server.root_poa().manager().activate().unwrap();
    let lane = |priority| LaneConfig::default().priority(priority);
    let lanes = LanesConfig::default().lanes([lane(10), lane(20)]);
    let pool = server.real_time().create_threadpool_with_lanes(&lanes).unwrap();
    let offering = |name: &str, server_protocols: &[Protocol], client_protocols: &[Protocol]| {
        let policies = RtPolicies {
            priority_model: Some((PriorityModel::ClientPropagated, 10)),
            threadpool: Some(pool),
            server_protocols: server_protocols.to_vec(),
            client_protocols: client_protocols.to_vec(),
            ..RtPolicies::default()
        };
        let root = server.root_poa();
        let poa = root.create_rt_poa(name, Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
        poa.activate(&Reporter::new(&server).servant()).unwrap()
    };
    let any = offering("any", &[], &[]);
    let mut profiles = any.ior().known_profiles();
    let listed = profiles.next().unwrap();
    let [(first, 10), (second, 20)] = &listed.lane_endpoints(&Limits::DEFAULT)[..] else { panic!("{listed:?}") };
    assert_eq!(listed.endpoints(), std::slice::from_ref(first));
    assert!(first != second && first.to_string().starts_with("pipe:x-"), "{first} {second}");
    assert_eq!(profiles.next().unwrap().tag, profile_tag::IIOP);
    assert_eq!(profiles.count(), 0);
    let pipe = folder.pipe();
    let orb = with(&pipe).real_time(fair()).build().unwrap();
    let object = |text: &str| orb.string_to_object(text).unwrap().unwrap();
    for priority in [10, 20] {
        orb.real_time().current().unwrap().set_priority(priority).unwrap();
        assert_eq!(call_who(&object(&any.to_string())).unwrap().priority, priority);
    }
    assert_eq!(pipe.connect_attempts(), 2);
    let (tcp, other) = (Protocol::Tcp(TcpProperties::default()), Protocol::Other);
    for (index, (offered, asked, works)) in
        [(other, other, true), (tcp, other, false), (other, tcp, false)].into_iter().enumerate()
    {
        let only = offering(&format!("only {index}"), &[offered], &[]).to_string();
        let asked = RtClientPolicies { client_protocols: vec![asked], ..RtClientPolicies::default() };
        let answer = call_who(&object(&only).with_rt_policies(&asked).unwrap());
        assert_eq!(
            answer.as_ref().map(drop).map_err(|refused| refused.kind()),
            if works { Ok(()) } else { Err(Kind::InvPolicy) }
        );
    }
    let before = pipe.connect_attempts();
    assert!(call_who(&object(&offering("says it", &[tcp, other], &[other]).to_string())).is_ok());
    assert!(pipe.connect_attempts() >= before);
}
