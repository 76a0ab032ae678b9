//! Calls on a shared connection that ends, or whose caller cancels or times out. The test acts as
//! the server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{PriorityModel, RtPolicies};
use corelane::{
    CallPolicies, Canceller, Completion, DeferredCall, Encoder, ObjectRef, Orb, RebindMode, SystemException,
    SystemExceptionKind as Kind, Timeout,
};
use corelane_sys::thread::current_tid;
use corelane_tests::Probe;
use corelane_wire::Cdr;
use corelane_wire::giop::{Header, MessageKind};
use corelane_wire::ior::Ior;

struct Played {
    listener: TcpListener,
    orb: Orb,
    object: ObjectRef,
}

fn play() -> Played {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let orb = Orb::new().unwrap();
    let object = orb.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/x")).unwrap().unwrap();
    Played { listener, orb, object }
}

impl Played {
    fn accept(&self) -> TcpStream {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    fn assert_one_connection(&self) {
        self.listener.set_nonblocking(true).unwrap();
        assert!(self.listener.accept().is_err(), "the client has made a second connection");
    }
}

fn try_post(object: &ObjectRef) -> Result<DeferredCall, SystemException> {
    object.send_deferred("cube_octet", |encoder| {
        encoder.write_u8(1);
        Ok(())
    })
}

fn post(object: &ObjectRef) -> DeferredCall {
    try_post(object).unwrap()
}

fn answer_of(mut call: DeferredCall) -> Result<u8, SystemException> {
    call.reply()?.read(|decoder| decoder.read_u8())
}

/// Returns the type of the next message, the first four bytes of its body, and the body's size in
/// bytes.
fn receive(stream: &mut TcpStream) -> (MessageKind, [u8; 4], usize) {
    let mut header = [0; 12];
    stream.read_exact(&mut header).unwrap();
    let header = Header::parse(&header).unwrap();
    let mut body = vec![0; header.total_len() - Header::LEN];
    stream.read_exact(&mut body).unwrap();
    (header.kind, body[..4].try_into().unwrap(), body.len())
}

fn request(stream: &mut TcpStream) -> [u8; 4] {
    let (kind, id, _) = receive(stream);
    assert_eq!(kind, MessageKind::Request);
    id
}

fn answer(stream: &mut TcpStream, id: [u8; 4], octet: u8) {
    let mut reply = b"GIOP\x01\x02\x01\x01\x0d\x00\x00\x00".to_vec();
    reply.extend_from_slice(&id);
    reply.extend_from_slice(&[0; 8]);
    reply.push(octet);
    stream.write_all(&reply).unwrap();
}

/// CloseConnection tells the client that the requests without a reply have not run.
#[test]
fn pending_calls_that_meet_close_connection_are_sent_again() {
    let played = play();
    let calls: Vec<_> = (0..3).map(|_| post(&played.object)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = played.accept();
            let first = request(&mut stream);
            for _ in 0..2 {
                let _ = request(&mut stream);
            }
            answer(&mut stream, first, 1);
            stream.write_all(b"GIOP\x01\x02\x01\x05\x00\x00\x00\x00").unwrap();
            drop(stream);
            // The first retry makes a new connection, which the second retry shares.
            let mut stream = played.accept();
            for octet in [2, 3] {
                let id = request(&mut stream);
                answer(&mut stream, id, octet);
            }
            played.assert_one_connection();
        });
        let answers: Vec<_> = calls.into_iter().map(|call| answer_of(call).unwrap()).collect();
        assert_eq!(answers, [1, 2, 3]);
    });
}

/// The client cannot know if calls on a reset connection have run.
#[test]
fn pending_calls_on_a_connection_that_is_reset_may_have_run() {
    let played = play();
    let calls: Vec<_> = (0..3).map(|_| post(&played.object)).collect();
    let mut stream = played.accept();
    let _ = request(&mut stream);
    // The kernel resets a connection that is closed with unread data.
    drop(stream);
    for call in calls {
        let lost = answer_of(call).unwrap_err();
        assert_eq!((lost.kind(), lost.completed()), (Kind::CommFailure, Completion::Maybe), "{lost}");
    }
    played.assert_one_connection();
}

#[test]
fn pending_calls_end_with_the_orb() {
    let played = play();
    let call = post(&played.object);
    let mut stream = played.accept();
    let _ = request(&mut stream);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| answer_of(call).unwrap_err());
        played.orb.shutdown(true).unwrap();
        let lost = waiter.join().unwrap();
        assert_eq!((lost.kind(), lost.completed()), (Kind::CommFailure, Completion::Maybe), "{lost}");
    });
}

fn until_asleep(tid: i32) {
    let asleep = || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().starts_with('S')
    };
    while !asleep() {
        std::thread::yield_now();
    }
}

#[test]
fn cancelling_wakes_the_thread_that_waits_for_a_deferred_reply() {
    let played = play();
    let canceller = Canceller::new().unwrap();
    let call = post(&played.object.with_canceller(&canceller));
    let other = post(&played.object);
    let mut stream = played.accept();
    let (cancelled, left) = (request(&mut stream), request(&mut stream));
    let tid = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            tid.store(current_tid().as_raw(), Ordering::SeqCst);
            answer_of(call).unwrap_err()
        });
        while tid.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        until_asleep(tid.load(Ordering::SeqCst));
        canceller.cancel();
        let given_up = waiter.join().unwrap();
        assert_eq!((given_up.kind(), given_up.minor() & 0xfff), (Kind::Transient, 3));
        assert_eq!(given_up.completed(), Completion::Maybe);
    });
    let (kind, id, _) = receive(&mut stream);
    assert_eq!((kind, id), (MessageKind::CancelRequest, cancelled));
    answer(&mut stream, left, 9);
    assert_eq!(answer_of(other).unwrap(), 9);
}

/// The client sends the rest of a partly sent request after the deadline of its call, before any
/// other message on the connection.
#[test]
fn deadline_in_mid_message_does_not_affect_other_calls() {
    const LARGE: usize = 32 << 20;
    let played = play();
    let before = post(&played.object);
    let policies = CallPolicies { timeout: Some(Timeout::Precise(Duration::from_millis(500))), ..CallPolicies::NONE };
    let hasty = played.object.with_policies(policies);
    let send = || hasty.send_deferred("mirror", |encoder| encoder.write_octet_sequence_copied(&vec![7; LARGE]));
    // If the deadline passes before the first byte is sent, the test repeats the call.
    let mut failed = std::iter::repeat_with(|| send().map(drop).unwrap_err());
    let late = failed.find(|late| late.kind() != Kind::Timeout || late.completed() == Completion::Maybe).unwrap();
    assert_eq!((late.kind(), late.completed()), (Kind::Timeout, Completion::Maybe), "{late}");
    let mut stream = played.accept();
    let first = request(&mut stream);
    let (kind, cut, octets) = receive(&mut stream);
    assert!(kind == MessageKind::Request && octets > LARGE);
    let after = post(&played.object);
    let last = request(&mut stream);
    answer(&mut stream, cut, 0);
    answer(&mut stream, last, 3);
    answer(&mut stream, first, 1);
    assert_eq!((answer_of(before).unwrap(), answer_of(after).unwrap()), (1, 3));
    played.assert_one_connection();
}

fn answer_otherwise(stream: &mut TcpStream, id: [u8; 4], status: u8, body: &[u8]) {
    let length = u32::try_from(12 + body.len()).unwrap();
    let mut reply = b"GIOP\x01\x02\x01\x01".to_vec();
    reply.extend_from_slice(&length.to_le_bytes());
    reply.extend_from_slice(&id);
    reply.extend_from_slice(&[status, 0, 0, 0, 0, 0, 0, 0]);
    reply.extend_from_slice(body);
    stream.write_all(&reply).unwrap();
}

fn call(object: &ObjectRef) -> Result<u8, SystemException> {
    static OPERATION: corelane::mapping::Operation<'static> = corelane::mapping::Operation::new("cube_octet");
    let mut reply = object.invoke(&OPERATION, &|encoder| {
        encoder.write_u8(1);
        Ok(())
    })?;
    reply.read(|decoder| decoder.read_u8())
}

#[test]
fn no_reconnect_raises_rebind_after_the_connection_closed() {
    let played = play();
    let policies = CallPolicies { rebind: Some(RebindMode::NoReconnect), ..CallPolicies::NONE };
    let object = played.object.with_policies(policies);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut stream = played.accept();
            let id = request(&mut stream);
            answer(&mut stream, id, 1);
            stream.write_all(b"GIOP\x01\x02\x01\x05\x00\x00\x00\x00").unwrap();
        });
        assert_eq!(call(&object).unwrap(), 1);
        server.join().unwrap();
        let rebind = call(&object).unwrap_err();
        assert_eq!((rebind.kind(), rebind.completed()), (Kind::Rebind, Completion::No));
        let deferred = object.send_deferred("cube_octet", |_| Ok(())).unwrap_err();
        assert_eq!(deferred.kind(), Kind::Rebind);
        // An explicit binding may connect again, which an ordinary call may not.
        let server = scope.spawn(|| {
            let mut stream = played.accept();
            let (kind, id, _) = receive(&mut stream);
            assert_eq!(kind, MessageKind::LocateRequest);
            let here = [b"GIOP\x01\x02\x01\x04\x08\x00\x00\x00".as_slice(), &id, &[1, 0, 0, 0]].concat();
            stream.write_all(&here).unwrap();
            let id = request(&mut stream);
            answer(&mut stream, id, 7);
        });
        object.validate_connection().unwrap();
        assert_eq!(call(&object).unwrap(), 7);
        server.join().unwrap();
    });
    played.assert_one_connection();
}

#[test]
fn no_rebind_raises_rebind_on_a_forward_to_other_policies() {
    let played = play();
    let policies = CallPolicies { rebind: Some(RebindMode::NoRebind), ..CallPolicies::NONE };
    let object = played.object.with_policies(policies);
    let other = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let declared = RtPolicies { priority_model: Some((PriorityModel::ServerDeclared, 7)), ..RtPolicies::default() };
    let poa = other.root_poa().create_rt_poa("declared", None, PoaPolicies::default(), &declared).unwrap();
    let moved = poa.create_reference("IDL:X:1.0").unwrap();
    let mut forward = Encoder::new();
    moved.ior().encode(&mut forward).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = played.accept();
            let id = request(&mut stream);
            answer(&mut stream, id, 1);
            let id = request(&mut stream);
            answer_otherwise(&mut stream, id, 3, &forward.to_vec());
            let id = request(&mut stream);
            answer(&mut stream, id, 2);
        });
        assert_eq!(call(&object).unwrap(), 1);
        assert_eq!(call(&object).unwrap_err().kind(), Kind::Rebind);
        assert_eq!(call(&object).unwrap(), 2);
    });
}

#[test]
fn late_reply_is_not_taken_for_the_reply_to_a_later_call() {
    let played = play();
    let policies = CallPolicies { timeout: Some(Timeout::Precise(Duration::from_millis(300))), ..CallPolicies::NONE };
    let hasty = played.object.with_policies(policies);
    // If the deadline passes before the request is sent, the test repeats the call.
    let late = std::iter::repeat_with(|| try_post(&hasty)).find_map(Result::ok).unwrap();
    let mut stream = played.accept();
    let late_id = request(&mut stream);
    assert_eq!(answer_of(late).unwrap_err().kind(), Kind::Timeout);
    assert_eq!(receive(&mut stream).0, MessageKind::CancelRequest);
    for call in 0..=1 << 15 {
        let next = post(&played.object);
        let id = request(&mut stream);
        assert_ne!(id, late_id, "call {call}");
        answer(&mut stream, id, 8);
        assert_eq!(answer_of(next).unwrap(), 8);
    }
    answer(&mut stream, late_id, 1);
    let next = post(&played.object);
    let id = request(&mut stream);
    answer(&mut stream, id, 27);
    assert_eq!(answer_of(next).unwrap(), 27);
}

fn joined(client: &Orb, parts: &[&ObjectRef]) -> ObjectRef {
    let profiles = parts.iter().flat_map(|part| part.ior().profiles.clone()).collect();
    let ior = Ior { type_id: "IDL:X:1.0".into(), profiles };
    client.string_to_object(&ior.to_text().unwrap()).unwrap().unwrap()
}

fn elsewhere() -> (Orb, ObjectRef) {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let declared = RtPolicies { priority_model: Some((PriorityModel::ServerDeclared, 7)), ..RtPolicies::default() };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("declared", Some(root.manager()), PoaPolicies::default(), &declared).unwrap();
    let object = poa.activate(&Probe::servant(corelane_tests::TestProbe::default())).unwrap();
    root.manager().activate().unwrap();
    (orb, object)
}

fn forward_to(object: &ObjectRef) -> Vec<u8> {
    let mut encoder = Encoder::new();
    object.ior().encode(&mut encoder).unwrap();
    encoder.to_vec()
}

fn keeping(object: &ObjectRef) -> ObjectRef {
    object.with_policies(CallPolicies { rebind: Some(RebindMode::NoRebind), ..CallPolicies::NONE })
}

#[test]
fn forward_is_followed_to_the_profile_with_the_bound_policies() {
    let (played, same) = (play(), play());
    let (other, moved) = elsewhere();
    let target = joined(&other, &[&moved, &same.object]);
    let object = keeping(&played.object);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = played.accept();
            let id = request(&mut stream);
            answer(&mut stream, id, 1);
            let id = request(&mut stream);
            answer_otherwise(&mut stream, id, 3, &forward_to(&target));
        });
        scope.spawn(|| {
            let mut stream = same.accept();
            for octet in [5, 6] {
                let id = request(&mut stream);
                answer(&mut stream, id, octet);
            }
        });
        assert_eq!(call(&object).unwrap(), 1);
        assert_eq!((call(&object).unwrap(), call(&object).unwrap()), (5, 6));
    });
}

#[test]
fn no_rebind_raises_rebind_when_the_matching_profile_does_not_answer() {
    let played = play();
    let (other, moved) = elsewhere();
    // The port `silent` stays closed, because no other test uses this address.
    let silent = TcpListener::bind("127.0.0.7:0").unwrap().local_addr().unwrap().port();
    let gone = other.string_to_object(&format!("corbaloc::1.2@127.0.0.7:{silent}/x")).unwrap().unwrap();
    let target = joined(&other, &[&gone, &moved]);
    let object = keeping(&played.object);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = played.accept();
            let id = request(&mut stream);
            answer(&mut stream, id, 1);
            for _ in 0..2 {
                let id = request(&mut stream);
                answer_otherwise(&mut stream, id, 3, &forward_to(&target));
            }
        });
        assert_eq!(call(&object).unwrap(), 1);
        let rebind = call(&object).unwrap_err();
        assert_eq!((rebind.kind(), rebind.completed()), (Kind::Rebind, Completion::No), "{rebind}");
    });
}

/// `NO_REBIND` counts a profile with different policies as another binding.
#[test]
fn no_rebind_refuses_a_next_profile_with_other_policies() {
    for mode in [RebindMode::Transparent, RebindMode::NoRebind] {
        let played = play();
        let (_other, declared) = elsewhere();
        let policies = CallPolicies { rebind: Some(mode), ..CallPolicies::NONE };
        let object = joined(&played.orb, &[&played.object, &declared]).with_policies(policies);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = played.accept();
                let id = request(&mut stream);
                answer(&mut stream, id, 9);
                stream.write_all(b"GIOP\x01\x02\x01\x05\x00\x00\x00\x00").unwrap();
            });
            assert_eq!(call(&object).unwrap(), 9);
        });
        drop(played.listener);
        match mode {
            RebindMode::Transparent => assert_eq!(call(&object).unwrap(), 1),
            _ => {
                assert_eq!(call(&object).unwrap_err().kind(), Kind::Rebind);
                // An explicit binding accepts the policies of the second profile.
                object.validate_connection().unwrap();
                assert_eq!(call(&object).unwrap(), 1);
            }
        }
    }
}
