//! A string from a peer appears in an event, a log line or an exception as one short line.

use std::io::Write;
use std::sync::Arc;

use corelane::{CallPolicies, Event, Orb, PoolConfig, SystemExceptionKind as Kind};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::scripted::{self, REPLY};
use corelane_tests::{EVERY_DISPATCH, ProbeRef, client, raw, serve_with};
use corelane_wire::giop::{self, RequestHeader, ResponseExpected, ServiceContext, TargetAddress, context_id};
use corelane_wire::{Cdr, Encoder, Version, rt};

const HOSTILE: &str = "op\r\ncorelane: all is well\x1b[2J\x1b]0;title\x07\u{202e}\u{2028}";
const MAX_LINE: usize = 4096;

fn assert_plain(line: &str, what: &str) {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '\u{2028}' | '\u{202e}');
    assert!(line.chars().all(is_plain), "{what}: {:?}", line.chars().take(300).collect::<String>());
    assert!(line.len() < MAX_LINE, "{what}: {} octets", line.len());
}

fn refused(key: &[u8], id: u32, operation: &[u8]) -> Vec<u8> {
    let data = rt::encode_priority_context(-7);
    let mut encoder = Encoder::new();
    let head = RequestHeader {
        version: Version::GIOP_1_2,
        request_id: id,
        response_expected: ResponseExpected::Target,
        target: TargetAddress::Key(key),
        operation,
        contexts: &[ServiceContext { id: context_id::RT_CORBA_PRIORITY, data: &data }],
    };
    giop::write_request_header(&mut encoder, &head).unwrap();
    giop::finish_message(&mut encoder).unwrap();
    encoder.slices().collect::<Vec<_>>().concat()
}

#[test]
fn operation_name_of_any_content_and_length_is_one_short_line_of_the_log() {
    let names =
        [HOSTILE.as_bytes().to_vec(), HOSTILE.repeat((1 << 20) / HOSTILE.len()).into_bytes(), vec![0xff; 1 << 20]];
    for dispatch in EVERY_DISPATCH {
        let told: Arc<Mutex<Vec<(Event, String)>>> = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
        let list = Arc::clone(&told);
        let pool = PoolConfig::default().dispatch(dispatch);
        let builder = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0");
        let server = serve_with(builder.on_event(move |event| list.lock().push((event.clone(), event.to_string()))));
        let (_orb, good) = client(&server.ior);
        let key = raw::probe_key(&server);
        let mut stream = raw::connect(&server);
        for (id, name) in (0..).map(|id| 2 * id).zip(&names) {
            stream.write_all(&refused(&key, id, name)).unwrap();
            // The server reports its event before it sends the reply, so the event exists when the
            // reply arrives.
            assert_eq!(raw::read_header(&mut stream).0, REPLY);
            let mut rest = vec![0; 12 + 4 * 3 + 64];
            let _ = stream.set_nonblocking(true);
            let _ = std::io::Read::read(&mut stream, &mut rest);
            let _ = stream.set_nonblocking(false);
            assert_eq!(good.cube_octet(3).unwrap(), 27);
        }
        let told = told.lock();
        assert_eq!(told.len(), names.len(), "{dispatch:?}");
        for ((event, line), name) in told.iter().zip(&names) {
            let Event::RequestRefused { operation, .. } = event else { panic!("{event:?}") };
            assert_plain(line, "the line");
            assert_plain(operation, "the operation");
            assert!(operation.len() < 512, "{} octets", operation.len());
            let is_long = name.len() > 256;
            assert_eq!(operation.ends_with(&format!("... ({} octets)", name.len())), is_long, "{operation}");
        }
    }
}

#[test]
fn ids_of_unknown_exceptions_are_one_short_line() {
    let good = scripted::serve(usize::MAX, |_, _| Ok(()));
    for length in [HOSTILE.len(), 1 << 20] {
        let id = HOSTILE.repeat(length / HOSTILE.len());
        let server = scripted::serve(0, move |stream, request| {
            let mut body = scripted::reply_start(request, 1);
            body.extend(u32::try_from(id.len() + 1).unwrap().to_le_bytes());
            body.extend(id.as_bytes());
            body.push(0);
            stream.write_all(&scripted::message(REPLY, false, &body))
        });
        let policies = CallPolicies { timeout: Some(std::time::Duration::from_secs(60).into()), ..CallPolicies::NONE };
        let orb = Orb::builder().call_policies(policies).build().unwrap();
        let probe = |address| {
            let object = orb.string_to_object(&format!("corbaloc::1.2@{address}/Key")).unwrap().unwrap();
            ProbeRef::from_object(object)
        };
        let exception = probe(server.address).cube_long(3).unwrap_err();
        assert_eq!(exception.kind(), Kind::Unknown);
        assert_plain(&exception.to_string(), "the exception");
        assert_plain(&exception.detail().unwrap().message, "its detail");
        assert_eq!(probe(good.address).cube_long(3).unwrap(), 27);
    }
}

#[test]
fn host_names_of_references_are_one_short_line() {
    // A host name is Latin-1 on the wire, so the text must be ASCII.
    let hostile: String = HOSTILE.chars().filter(char::is_ascii).collect();
    for host in [hostile.clone(), hostile.repeat(1000)] {
        let orb = Orb::new().unwrap();
        let mut ior = corelane_wire::ior::Ior { type_id: String::new(), profiles: Vec::new() };
        let address = corelane_wire::ior::ProfileAddress::Inet { host: &host, port: 1 };
        let profile = corelane_wire::ior::TaggedProfile::encode(Version::GIOP_1_2, address, b"Key", &[]).unwrap();
        ior.profiles.push(profile);
        let mut encoder = Encoder::new();
        encoder.set_endian(corelane_wire::Endian::Little);
        encoder.write_u8(1);
        ior.encode(&mut encoder).unwrap();
        let hex = |octet: &u8| format!("{octet:02x}");
        let text = format!("IOR:{}", encoder.to_vec().iter().map(hex).collect::<String>());
        let probe = ProbeRef::from_object(orb.string_to_object(&text).unwrap().unwrap());
        let exception = probe.cube_long(3).unwrap_err();
        assert_plain(&exception.to_string(), "the exception");
    }
}
