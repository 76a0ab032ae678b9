//! A request above the server's size limit gets one clear answer and is sent once.

use std::io::{Read, Write};

use corelane::{Completion, Dispatch, Encoder, Limits, Orb, OrbBuilder, PoolConfig, SystemException};
use corelane::{SystemExceptionKind as Kind, minor};
use corelane_tests::{EVERY_DISPATCH, ProbeRef, Server, raw, serve_with};

const LIMIT: u32 = 1 << 20;
/// Size in bytes of an argument. It exceeds the kernel's buffers between two sockets.
const LARGE: usize = 40 << 20;

fn server(dispatch: Dispatch) -> Server {
    let limits = Limits { max_message_size: LIMIT, ..Limits::DEFAULT };
    serve_with(Orb::builder().limits(limits).pool(PoolConfig::default().dispatch(dispatch)).listen("tcp:127.0.0.1:0"))
}

fn client(server: &Server, builder: OrbBuilder) -> (Orb, ProbeRef) {
    let orb = builder.call_timeout(std::time::Duration::from_secs(120)).build().unwrap();
    let object = orb.string_to_object(&server.ior).unwrap().unwrap();
    (orb, ProbeRef::from_object(object))
}

fn assert_too_large(exception: &SystemException, what: &str) {
    let answer = (exception.kind(), exception.minor(), exception.completed());
    assert_eq!(answer, (Kind::ImpLimit, minor::MESSAGE_TOO_LARGE, Completion::No), "{what}: {exception}");
}

type OversizedCall = fn(&ProbeRef) -> SystemException;

fn mirror(probe: &ProbeRef) -> SystemException {
    probe.mirror(&vec![7; LARGE]).unwrap_err()
}

fn deferred(probe: &ProbeRef) -> SystemException {
    let argument = |encoder: &mut Encoder<'static>| encoder.write_octet_sequence_copied(&vec![7; LARGE]);
    probe.as_object().send_deferred("mirror", argument).and_then(|mut call| call.reply().map(drop)).unwrap_err()
}

#[test]
fn request_above_the_limit_is_sent_once_and_refused_clearly() {
    let calls: [(&str, OversizedCall); 2] = [("a call", mirror), ("a deferred call", deferred)];
    for dispatch in EVERY_DISPATCH {
        for (what, call) in calls {
            for (fragments, warm) in [(None, false), (None, true), (Some(64 << 10), false)] {
                let server = server(dispatch);
                let builder = Orb::builder();
                let builder = if let Some(size) = fragments { builder.max_fragment_size(size) } else { builder };
                let (_orb, probe) = client(&server, builder);
                if warm {
                    assert_eq!(probe.cube_octet(3).unwrap(), 27);
                }
                let what = format!("{what}, {dispatch:?}, {fragments:?}, {warm}");
                assert_too_large(&call(&probe), &what);
                assert_eq!(server.orb.event_counts().protocol_faults, 1, "{what}: attempts");
                assert_eq!(probe.cube_octet(3).unwrap(), 27, "{what}: the next call");
            }
        }
    }
}

/// The client reads only after it has sent the whole request, as most clients do.
#[test]
fn client_that_sends_everything_before_it_reads_gets_the_refusal() {
    for dispatch in EVERY_DISPATCH {
        let server = server(dispatch);
        let mut stream = raw::connect(&server);
        let data = vec![7; LARGE];
        let request =
            raw::request(&raw::probe_key(&server), 8, "mirror", |encoder| encoder.write_octet_sequence(&data).unwrap());
        stream.write_all(&request).unwrap_or_else(|error| panic!("{dispatch:?}: {error}"));
        let (kind, size) = raw::read_header(&mut stream);
        assert_eq!(kind, raw::REPLY, "{dispatch:?}");
        let mut body = vec![0; size];
        stream.read_exact(&mut body).unwrap();
        assert!(body.windows(9).any(|octets| octets == b"IMP_LIMIT"), "{dispatch:?}");
        // Earlier requests on the connection may have run, so the server sends MessageError, not
        // CloseConnection.
        assert_eq!(raw::read_header(&mut stream), (6, 0), "{dispatch:?}");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{dispatch:?}");
    }
}
