//! Second attempts of calls, and failures of marshalling, in a client with one connection.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane::mapping::{Cdr, CdrError, Operation};
use corelane::rt::{RtClientPolicies, with_client_policies};
use corelane::{CallPolicies, Completion, Decoder, Encoder, Orb, SystemExceptionKind as Kind};
use corelane_tests::ProbeRef;
use corelane_tests::scripted::{REPLY, ScriptedServer, message, reply_start, serve, successful_reply};

static CUBE: Operation<'_> = Operation::new("cube_long");

fn two_calls(probe: &ProbeRef) {
    assert_eq!((probe.cube_long(3).unwrap(), probe.cube_long(3).unwrap()), (27, 27));
}

fn in_both_ways(test: impl Fn(fn(&ProbeRef))) {
    test(two_calls);
    test(|probe| with_client_policies(&RtClientPolicies::default(), || two_calls(probe)).unwrap());
}

fn client(server: &ScriptedServer) -> (Orb, ProbeRef) {
    let policies = CallPolicies { timeout: Some(Duration::from_secs(20).into()), ..CallPolicies::NONE };
    let orb = Orb::builder().call_policies(policies).max_connections_per_server(1).build().unwrap();
    let object = orb.string_to_object(&format!("corbaloc::1.2@{}/Key", server.address)).unwrap().unwrap();
    (orb, ProbeRef::from_object(object))
}

fn arguments(encoder: &mut Encoder<'_>) -> Result<(), CdrError> {
    encoder.write_i32(3);
    Ok(())
}

fn number(decoder: &mut Decoder<'_>) -> Result<i32, CdrError> {
    decoder.read_i32()
}

#[test]
fn forward_to_the_same_server_uses_the_connection_of_the_forward() {
    in_both_ways(|two_calls| {
        let forward = Arc::new(std::sync::OnceLock::<Vec<u8>>::new());
        let forwards = AtomicUsize::new(0);
        let body = Arc::clone(&forward);
        let server = serve(1, move |stream, id| {
            if forwards.fetch_add(1, Ordering::SeqCst) > 0 {
                return stream.write_all(&successful_reply(id));
            }
            stream.write_all(&message(REPLY, false, &[&reply_start(id, 3), &body.get().unwrap()[..]].concat()))
        });
        let (_orb, probe) = client(&server);
        let mut encoder = Encoder::new();
        encoder.set_endian(corelane_wire::Endian::Little);
        probe.as_object().ior().encode(&mut encoder).unwrap();
        forward.set(encoder.to_vec()).unwrap();
        two_calls(&probe);
        assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    });
}

fn busy() -> (ScriptedServer, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let server = serve(0, move |stream, id| {
        counted.fetch_add(1, Ordering::SeqCst);
        let mut body = Encoder::new();
        body.set_endian(corelane_wire::Endian::Little);
        body.write_str("IDL:omg.org/CORBA/TRANSIENT:1.0").unwrap();
        [0, 1].into_iter().for_each(|number| body.write_u32(number));
        stream.write_all(&message(REPLY, false, &[reply_start(id, 2), body.to_vec()].concat()))
    });
    (server, requests)
}

#[test]
fn transient_is_retried_up_to_the_maximum_of_the_policy() {
    let (server, requests) = busy();
    let (_orb, probe) = client(&server);
    for (max_transient_retries, expected) in [(None, 1), (Some(0), 1), (Some(3), 4)] {
        requests.store(0, Ordering::SeqCst);
        let patient = probe.with_policies(CallPolicies { max_transient_retries, ..CallPolicies::NONE });
        assert_eq!(patient.cube_long(3).unwrap_err().kind(), Kind::Transient);
        assert_eq!(requests.load(Ordering::SeqCst), expected, "{max_transient_retries:?}");
    }
}

/// Fails if the client makes all 256 attempts before the deadline, which it would without pauses.
#[test]
fn retries_of_transient_pause_and_end_with_the_time_out_of_the_call() {
    let (server, requests) = busy();
    let (_orb, probe) = client(&server);
    let timeout = Some(Duration::from_secs(1).into());
    let patient = probe.with_policies(CallPolicies { max_transient_retries: Some(255), timeout, ..CallPolicies::NONE });
    // If the machine pauses, the deadline may pass before the second attempt, so the call is
    // repeated.
    while requests.load(Ordering::SeqCst) < 2 {
        requests.store(0, Ordering::SeqCst);
        let refused = patient.cube_long(3).unwrap_err();
        assert!(matches!(refused.kind(), Kind::Transient | Kind::Timeout), "{refused}");
    }
    assert!(requests.load(Ordering::SeqCst) < 256, "{requests:?}");
}

#[test]
fn needs_addressing_mode_is_followed_on_its_connection() {
    in_both_ways(|two_calls| {
        let asked = AtomicUsize::new(0);
        let server = serve(1, move |stream, id| {
            if asked.fetch_add(1, Ordering::SeqCst) > 0 {
                return stream.write_all(&successful_reply(id));
            }
            stream.write_all(&message(REPLY, false, &[&reply_start(id, 5), &[1, 0][..]].concat()))
        });
        let (_orb, probe) = client(&server);
        two_calls(&probe);
        assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn call_is_retried_on_a_new_connection_when_the_server_closes_the_only_one() {
    in_both_ways(|two_calls| {
        const CLOSE_CONNECTION: u8 = 5;
        let server = serve(1, |stream, _| {
            stream.write_all(&message(CLOSE_CONNECTION, false, &[]))?;
            Err(io::ErrorKind::ConnectionAborted.into())
        });
        let (_orb, probe) = client(&server);
        two_calls(&probe);
        assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn reply_is_consumed_when_unmarshalling_panics_or_fails() {
    let server = serve(usize::MAX, |_, _| Ok(()));
    let (_orb, probe) = client(&server);
    let object = probe.as_object();
    assert_eq!(probe.cube_long(3).unwrap(), 27);
    let panics = |_: &mut Decoder<'_>| -> Result<i32, CdrError> { panic!("a panic of the test") };
    for _ in 0..3 {
        catch_unwind(AssertUnwindSafe(|| object.call(&CUBE, panics, &arguments))).unwrap_err();
        assert_eq!(object.call(&CUBE, number, &arguments).unwrap(), 27);
        let exception = object.call(&CUBE, |decoder| decoder.read_u64(), &arguments).unwrap_err();
        assert_eq!((exception.kind(), exception.completed()), (Kind::Marshal, Completion::Yes));
        assert_eq!(object.call(&CUBE, number, &arguments).unwrap(), 27);
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn nothing_is_sent_when_marshalling_panics_or_fails() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&requests);
    let server = serve(0, move |stream, id| {
        counted.fetch_add(1, Ordering::SeqCst);
        stream.write_all(&successful_reply(id))
    });
    let (_orb, probe) = client(&server);
    let object = probe.as_object();
    for calls in 1..4 {
        assert_eq!(object.call(&CUBE, number, &arguments).unwrap(), 27);
        let panics = |_: &mut Encoder<'_>| -> Result<(), CdrError> { panic!("a panic of the test") };
        catch_unwind(AssertUnwindSafe(|| object.call(&CUBE, number, &panics))).unwrap_err();
        let exception = object.call(&CUBE, number, &|_| Err(CdrError::LengthOverflow)).unwrap_err();
        assert_eq!(exception.completed(), Completion::No);
        assert_eq!(requests.load(Ordering::SeqCst), calls);
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}
