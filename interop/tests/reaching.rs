//! Objects that clients reach by plain keys, forwards, other addressing modes and Unix sockets, and
//! oneways that wait.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use corelane::{CallPolicies, Orb, SyncScope};
use corelane_interop::client_server_run::{self, CorbalocVersion, ExtraOptions, TrafficCheck};
use corelane_interop::interop::*;
use corelane_interop::peers::Orb::{self as Peer, Corelane, JacOrb, OmniOrb};
use corelane_interop::peers::{Peers, Variant};
use corelane_interop::process::{self, Server};
use corelane_interop::report::Report;
use corelane_interop::skips::Skips;
use corelane_interop::suite::servants::{self, SuiteServant};
use corelane_wire::giop::{
    self, AddressingMode, Header, LocateStatus, MessageKind, Reply, ReplyStatus, Request, RequestHeader,
    ResponseExpected, TargetAddress,
};
use corelane_wire::ior::{Ior, ProfileAddress, TaggedProfile};
use corelane_wire::{Cdr, Encoder, Limits, Version};

const LIMITS: Limits = Limits::DEFAULT;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn peers() -> &'static Peers {
    Peers::build(&folder("peers")).unwrap_or_else(|trouble| panic!("{trouble}"))
}

fn judged(mut client: Command, reference: &str, folder: &Path, server: Server, skips: &Skips) {
    client.arg(reference).args(["--shutdown", "--big", "10000", "--rounds", "3"]);
    client.args(skips.client_options());
    let finished = process::run(client, "client", folder, Duration::from_secs(120)).unwrap();
    let report = Report::parse(&finished.output).unwrap_or_else(|trouble| panic!("{trouble}\n{}", finished.output));
    let found = skips.differences(&report, TrafficCheck::Unchecked);
    assert!(found.is_empty(), "{}\nserver:\n{}", found.join("\n"), server.output());
    assert!(report.passed.len() >= 100, "only {} checks ran", report.passed.len());
    server.wait_for_exit().unwrap();
}

fn by_corbaloc(server: Peer, client: Peer) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    for (name, version) in [("-1.2", CorbalocVersion::Giop12), ("", CorbalocVersion::Absent)] {
        let extra =
            ExtraOptions { name, server: &[], client: &["--big", "10000", "--rounds", "3"], corbaloc: Some(version) };
        match client_server_run::run_with(&folder, server, client, Variant::CORBALOC, TrafficCheck::Dissected, extra) {
            Ok(report) => assert!(report.passed.len() >= 100, "only {} checks ran", report.passed.len()),
            Err(trouble) => panic!("{version:?}: {trouble}"),
        }
    }
}

#[test]
fn omniorb_reaches_a_plain_key_of_corelane() {
    by_corbaloc(Corelane, OmniOrb);
}

#[test]
fn jacorb_reaches_a_plain_key_of_corelane() {
    by_corbaloc(Corelane, JacOrb);
}

#[test]
fn corelane_reaches_plain_keys_of_all_servers() {
    for server in [Corelane, OmniOrb, JacOrb] {
        by_corbaloc(server, Corelane);
    }
}

/// Returns a short path for a Unix socket, whose address has room for at most 107 octets. Removes
/// an old socket at this path.
fn socket(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("corelane-{}-{name}", std::process::id()));
    let _ = fs::remove_file(&path);
    path
}

#[test]
fn corelane_calls_omniorb_over_a_unix_socket() {
    let (folder, socket) = (folder("unix-omniorb-corelane"), socket("o"));
    let mut server = Command::new(folder.join("../peers/omniorb/server"));
    peers();
    server.arg("-ORBendPoint").arg(format!("giop:unix:{}", socket.display())).args(["--life", "200"]);
    let running = Server::start(server, &folder).unwrap();
    let reference = fs::read_to_string(running.reference()).unwrap().trim().to_owned();
    let skips = Skips::for_pair("omniorb", "corelane", "unix").unwrap();
    judged(peers().client_command(Corelane, Variant::GIOP_1_2, 0), &reference, &folder, running, &skips);
}

#[test]
fn omniorb_calls_corelane_over_a_unix_socket() {
    let (folder, socket) = (folder("unix-corelane-omniorb"), socket("c"));
    let program = Path::new(env!("CARGO_BIN_EXE_corelane-interop-server"));
    let mut server = Command::new(program);
    server.arg("--listen").arg(format!("unix:{}", socket.display())).args(["--life", "200"]);
    let running = Server::start(server, &folder).unwrap();
    let reference = fs::read_to_string(running.reference()).unwrap().trim().to_owned();
    let skips = Skips::for_pair("corelane", "omniorb", "unix").unwrap();
    let mut client = Command::new(folder.join("../peers/omniorb/client"));
    peers();
    // omniORB does not use Unix sockets of other ORBs without this rule.
    client.args(["-ORBendPoint", "giop:unix:", "-ORBclientTransportRule", "* unix,tcp"]);
    judged(client, &reference, &folder, running, &skips);
}

fn suite() -> (Orb, SuiteRef) {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let poa = orb.root_poa();
    let suite =
        poa.activate(&servants::suite_servant(SuiteServant::new(&poa, orb.shutdown_handle()).unwrap())).unwrap();
    poa.manager().activate().unwrap();
    (orb, SuiteRef::from_object(suite))
}

fn receive(socket: &mut TcpStream) -> Option<(Header, Vec<u8>)> {
    let mut message = vec![0; Header::LEN];
    socket.read_exact(&mut message).ok()?;
    let header = Header::parse(message[..].try_into().unwrap()).unwrap();
    message.resize(header.total_len(), 0);
    socket.read_exact(&mut message[Header::LEN..]).ok()?;
    Some((header, message))
}

/// Starts a server for one connection. `answer` writes the reply to each message. Returns the
/// server's reference, and the thread, which returns the number of messages.
fn odd_server(
    mut answer: impl FnMut(usize, &Header, &[u8], &mut Encoder<'_>) + Send + 'static,
) -> (String, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut count = 0;
        while let Some((header, message)) = receive(&mut socket) {
            if header.kind == MessageKind::CloseConnection {
                break;
            }
            let mut reply = Encoder::new();
            answer(count, &header, &message, &mut reply);
            count += 1;
            giop::finish_message(&mut reply).unwrap();
            socket.write_all(&reply.to_vec()).unwrap();
        }
        count
    });
    let address = ProfileAddress::Inet { host: "127.0.0.1", port };
    let profile = TaggedProfile::encode(Version::GIOP_1_2, address, b"odd", &[]).unwrap();
    let ior = Ior { type_id: SuiteRef::REPOSITORY_ID.into(), profiles: vec![profile] };
    (ior.to_text().unwrap(), thread)
}

#[test]
fn corelane_changes_to_the_addressing_mode_that_a_server_needs() {
    for wanted in [AddressingMode::Profile, AddressingMode::Reference] {
        let (reference, server) = odd_server(move |_, header, message, reply| {
            let request = Request::parse(message, header, &LIMITS).unwrap();
            let (version, id) = (request.version, request.request_id);
            if request.target.addressing_mode() == wanted {
                giop::begin_reply(reply, version, id, ReplyStatus::NoException, &[]).unwrap();
                reply.write_u32(42);
                reply.write_i64(43);
            } else {
                giop::begin_reply(reply, version, id, ReplyStatus::NeedsAddressingMode, &[]).unwrap();
                reply.write_i16(wanted as i16);
            }
        });
        let orb = Orb::new().unwrap();
        let suite: SuiteRef = orb.string_to_reference(&reference).unwrap();
        assert_eq!(suite.take_notes().unwrap(), (42, 43), "{wanted:?}");
        // The client may remember the addressing mode or learn it again, so the number of messages
        // is not certain.
        assert_eq!(suite.take_notes().unwrap(), (42, 43), "{wanted:?}");
        orb.shutdown(true).unwrap();
        assert!(server.join().unwrap() >= 3);
    }
}

#[test]
fn corelane_serves_every_addressing_mode() {
    let (orb, suite) = suite();
    let corelane::Endpoint::Tcp { host, port } = &orb.endpoints()[0] else { panic!("no TCP endpoint") };
    let ior = suite.as_object().ior().clone();
    let profile = &ior.profiles[0];
    let key = profile.parse().unwrap().object_key.to_vec();
    let mut e = Encoder::new();
    ior.encode(&mut e).unwrap();
    let whole = e.to_vec();
    let (tag, data) = (profile.tag, &profile.data[..]);
    let targets = [
        TargetAddress::Key(&key),
        TargetAddress::Profile { tag, data },
        TargetAddress::Reference { selected: 0, tag, data, ior: &whole },
    ];
    let mut socket = TcpStream::connect((host.as_str(), *port)).unwrap();
    for (request_id, target) in (1..).zip(targets) {
        let mut e = Encoder::new();
        let head = RequestHeader {
            version: Version::GIOP_1_2,
            request_id,
            response_expected: ResponseExpected::Target,
            target,
            operation: b"_get_implementation",
            contexts: &[],
        };
        giop::write_request_header(&mut e, &head).unwrap();
        giop::finish_message(&mut e).unwrap();
        socket.write_all(&e.to_vec()).unwrap();
        let (header, message) = receive(&mut socket).unwrap();
        let reply = Reply::parse(&message, &header, &LIMITS).unwrap();
        assert_eq!((reply.request_id, reply.status), (request_id, ReplyStatus::NoException), "{target:?}");
        assert_eq!(reply.body().read_str().unwrap(), "Corelane");

        let mut e = Encoder::new();
        giop::write_locate_request(&mut e, Version::GIOP_1_2, request_id + 100, &target).unwrap();
        giop::finish_message(&mut e).unwrap();
        socket.write_all(&e.to_vec()).unwrap();
        let (header, message) = receive(&mut socket).unwrap();
        let reply = giop::LocateReply::parse(&message, &header).unwrap();
        assert_eq!(reply.status, LocateStatus::ObjectHere, "{target:?}");
    }
}

#[test]
fn corelane_follows_forwards_of_requests_and_locate_requests() {
    let (orb, suite) = suite();
    let elsewhere = suite.as_object().ior().clone();
    for (permanently, status) in [(false, ReplyStatus::LocationForward), (true, ReplyStatus::LocationForwardPerm)] {
        let to = elsewhere.clone();
        let (reference, server) = odd_server(move |_, header, message, reply| match header.kind {
            MessageKind::Request => {
                let request = Request::parse(message, header, &LIMITS).unwrap();
                giop::begin_reply(reply, request.version, request.request_id, status, &[]).unwrap();
                to.encode(reply).unwrap();
            }
            _ => {
                let request = giop::LocateRequest::parse(message, header, &LIMITS).unwrap();
                let status = if permanently { LocateStatus::ObjectForwardPerm } else { LocateStatus::ObjectForward };
                giop::begin_locate_reply(reply, header.version, request.request_id, status);
                to.encode(reply).unwrap();
            }
        });
        let client = Orb::new().unwrap();
        let forwarded: SuiteRef = client.string_to_reference(&reference).unwrap();
        assert_eq!(forwarded.implementation().unwrap(), "Corelane");
        let located: SuiteRef = client.string_to_reference(&reference).unwrap();
        located.as_object().validate_connection().unwrap();
        assert_eq!(located.implementation().unwrap(), "Corelane");
        client.shutdown(true).unwrap();
        assert_eq!(
            server.join().unwrap(),
            2,
            "each reference sends one request to this server, and later ones to the forwarded address"
        );
    }
    orb.shutdown(true).unwrap();
}

#[test]
fn oneways_that_wait_for_the_server_work_with_every_server() {
    for server in [Corelane, OmniOrb, JacOrb] {
        let folder = folder(&format!("oneways-{}", server.name()));
        let running = Server::start(peers().server_command(server, Variant::GIOP_1_2, 0), &folder).unwrap();
        let reference = fs::read_to_string(running.reference()).unwrap();
        let orb = Orb::new().unwrap();
        let suite: SuiteRef = orb.string_to_reference(reference.trim()).unwrap();
        for scope in [SyncScope::Transport, SyncScope::Server, SyncScope::Target] {
            let scoped = suite.with_policies(CallPolicies { sync_scope: Some(scope), ..CallPolicies::NONE });
            suite.take_notes().unwrap();
            for _ in 0..50 {
                scoped.note(2, "x").unwrap();
            }
            let (seen, name) = (suite.await_notes(50, 10_000).unwrap(), server.name());
            assert_eq!((seen, suite.take_notes().unwrap()), (50, (50, 100)), "{scope:?} at {name}");
            if scope == SyncScope::Target {
                scoped.note(7, "y").unwrap();
                assert_eq!(suite.take_notes().unwrap(), (1, 7), "{name}");
            }
        }
        suite.shutdown().unwrap();
        running.wait_for_exit().unwrap();
    }
}
