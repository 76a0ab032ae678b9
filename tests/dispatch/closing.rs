//! Deadlines, restarts of servers, CloseConnection and shutdown.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use corelane::{
    CallPhase, CallPolicies, Completion, Dispatch, Orb, PoolConfig, SystemException, SystemExceptionKind as Kind,
    Timeout, with_call_policies,
};
use corelane_tests::{EVERY_DISPATCH, ProbeRef, client, serve, serve_at, serve_with};

/// Returns the exception of a call that times out after its request was sent.
///
/// Repeats the call if its deadline passed before its request was sent, which happens on a loaded
/// machine.
fn sent_and_late(call: impl Fn() -> SystemException) -> SystemException {
    loop {
        let late = call();
        assert_eq!(late.kind(), Kind::Timeout, "{late}");
        if late.completed() == Completion::Maybe {
            return late;
        }
        assert_eq!(late.completed(), Completion::No, "{late}");
    }
}

#[test]
fn deadlines_are_kept_at_every_level() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let (_orb, probe) = client(&server.ior);
    // Connects first, so that the time-outs of calls on this connection do not include the time to
    // connect.
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    let precise = probe.with_timeout(Duration::from_millis(30));
    let late = sent_and_late(|| {
        let start = Instant::now();
        let late = precise.wait_for_level(1).unwrap_err();
        assert!(start.elapsed() >= Duration::from_millis(30));
        late
    });
    let detail = late.detail().unwrap();
    assert_eq!(detail.phase, Some(CallPhase::WaitForReply));
    assert!(detail.endpoint.as_deref().unwrap().starts_with("tcp:127.0.0.1:"));
    server.probe.set_level(1).unwrap();
    assert_eq!(precise.with_timeout(Duration::from_secs(60)).cube_octet(2).unwrap(), 8);
    let of_thread = CallPolicies { timeout: Some(Duration::from_millis(20).into()), ..CallPolicies::NONE };
    let late = with_call_policies(of_thread, || probe.wait_for_level(2)).unwrap_err();
    assert_eq!(late.kind(), Kind::Timeout);
    server.probe.set_level(2).unwrap();
    let impatient = Orb::builder().call_timeout(Duration::from_millis(20)).build().unwrap();
    let probe = ProbeRef::from_object(impatient.string_to_object(&server.ior).unwrap().unwrap());
    assert_eq!(probe.wait_for_level(3).unwrap_err().kind(), Kind::Timeout);
    server.probe.set_level(3).unwrap();
}

#[test]
fn coarse_timeout_never_fires_early() {
    let server = serve(Dispatch::LeaderFollowers { threads: 4 });
    let orb = Orb::builder().max_connections_per_server(1).build().unwrap();
    let probe: ProbeRef = orb.string_to_reference(&server.ior).unwrap();
    for (level, milliseconds) in (1..).zip([80, 88, 40, 42]) {
        let whole = Duration::from_millis(milliseconds);
        let coarse = CallPolicies { timeout: Some(Timeout::Coarse(whole)), ..CallPolicies::NONE };
        let coarse = probe.with_policies(coarse);
        sent_and_late(|| {
            let start = Instant::now();
            let late = coarse.wait_for_level(level).unwrap_err();
            assert!(start.elapsed() >= whole, "{:?} of {whole:?}", start.elapsed());
            late
        });
        server.probe.set_level(level).unwrap();
    }
    assert_eq!(server.orb.event_counts().connections_opened, 1);
}

#[test]
fn client_reaches_a_restarted_server() {
    for dispatch in EVERY_DISPATCH {
        let first = serve_at("127.0.0.2", dispatch);
        let corelane::Endpoint::Tcp { port, .. } = first.orb.endpoints()[0].clone() else { panic!() };
        let (orb, probe) = client(&first.ior);
        first.orb.bind_corbaloc_key("Probe", first.probe.as_object()).unwrap();
        let by_key = orb.string_to_object(&format!("corbaloc::1.2@127.0.0.2:{port}/Probe")).unwrap().unwrap();
        let by_key = ProbeRef::from_object(by_key);
        assert_eq!(by_key.cube_octet(2).unwrap(), 8);
        assert_eq!(probe.cube_octet(2).unwrap(), 8);
        drop(first);
        let address = format!("tcp:127.0.0.2:{port}");
        let second = serve_with(Orb::builder().pool(PoolConfig::default().dispatch(dispatch)).listen(address));
        second.orb.bind_corbaloc_key("Probe", second.probe.as_object()).unwrap();
        assert_eq!(by_key.cube_octet(3).unwrap(), 27, "{dispatch:?}");
        let gone = probe.cube_octet(2).unwrap_err();
        assert_eq!((gone.kind(), gone.completed()), (Kind::ObjectNotExist, Completion::No));
        assert!(probe.as_object().non_existent().unwrap());
    }
}

#[test]
fn refused_connection_is_transient_and_names_the_address() {
    let server = serve_at("127.0.0.3", Dispatch::Reactive);
    let ior = server.ior.clone();
    drop(server);
    let (_orb, probe) = client(&ior);
    let refused = probe.cube_octet(1).unwrap_err();
    assert_eq!((refused.kind(), refused.completed()), (Kind::Transient, Completion::No));
    assert!(refused.to_string().contains("connecting at tcp:127.0.0.3:"), "{refused}");
}

#[test]
fn shutdown_lets_running_requests_finish() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let (_orb, probe) = client(&server.ior);
        probe.cube_octet(1).unwrap();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| probe.slow(100));
            while server.probe.started().unwrap() == 0 {
                std::thread::yield_now();
            }
            server.orb.shutdown(true).unwrap();
            call.join().unwrap().unwrap_or_else(|lost| panic!("{dispatch:?}: {lost}"));
        });
        let refused = server.probe.cube_octet(1).unwrap_err();
        assert_eq!(refused.kind(), Kind::BadInvOrder);
    }
}

/// Fails if one of two simultaneous shutdowns ends a running request that takes longer than the
/// drain time-out.
#[test]
fn second_shutdown_does_not_cut_the_first_short() {
    for dispatch in EVERY_DISPATCH {
        let pool = PoolConfig::default().dispatch(dispatch);
        let closing_time = Duration::from_millis(50);
        let server = serve_with(Orb::builder().pool(pool).drain_timeout(closing_time).listen("tcp:127.0.0.1:0"));
        let ((_first, busy), (_other, probe)) = (client(&server.ior), client(&server.ior));
        probe.cube_octet(1).unwrap();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| busy.slow(400));
            while server.probe.started().unwrap() == 0 {
                std::thread::yield_now();
            }
            let ends = [(); 2].map(|()| scope.spawn(|| server.orb.shutdown(true)));
            std::thread::sleep(4 * closing_time);
            // On a loaded machine both shutdowns may begin later, so calls are repeated until one
            // fails.
            let patient = probe.with_timeout(Duration::from_secs(60));
            let late = std::iter::repeat_with(|| patient.cube_octet(1)).find_map(Result::err).unwrap();
            assert!(!matches!(late.kind(), Kind::Timeout | Kind::CommFailure), "{dispatch:?}: {late}");
            call.join().unwrap().unwrap_or_else(|lost| panic!("{dispatch:?}: {lost}"));
            ends.into_iter().for_each(|end| end.join().unwrap().unwrap());
        });
    }
}

/// CloseConnection tells the client that requests without a reply have not run.
#[test]
fn a_request_that_meets_close_connection_is_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let closer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 512];
        assert!(stream.read(&mut request).unwrap() > 12);
        stream.write_all(b"GIOP\x01\x02\x01\x05\x00\x00\x00\x00").unwrap();
        drop(stream);
        let (mut stream, _) = listener.accept().unwrap();
        let read = stream.read(&mut request).unwrap();
        assert!(read > 16);
        let mut reply = b"GIOP\x01\x02\x01\x01\x0d\x00\x00\x00".to_vec();
        reply.extend_from_slice(&request[12..16]);
        reply.extend_from_slice(&[0; 8]);
        reply.push(9);
        stream.write_all(&reply).unwrap();
        let _ = stream.read(&mut request);
    });
    let orb = Orb::new().unwrap();
    let object = orb.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/x")).unwrap().unwrap();
    assert_eq!(ProbeRef::from_object(object).cube_octet(1).unwrap(), 9);
    drop(orb);
    closer.join().unwrap();
}

/// A request may have run if the server closes the connection without CloseConnection.
#[test]
fn a_request_that_may_have_run_is_not_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let closer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 512];
        assert!(stream.read(&mut request).unwrap() > 12);
        drop(stream);
        listener
    });
    let orb = Orb::new().unwrap();
    let object = orb.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/x")).unwrap().unwrap();
    let lost = ProbeRef::from_object(object).cube_octet(1).unwrap_err();
    assert_eq!((lost.kind(), lost.completed()), (Kind::CommFailure, Completion::Maybe));
    // A second attempt would have reached the listener by now.
    let listener = closer.join().unwrap();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "the request was sent again");
}

#[test]
fn call_can_be_cancelled_from_another_thread() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let (_orb, probe) = client(&server.ior);
    let canceller = corelane::Canceller::new().unwrap();
    let cancellable = probe.with_canceller(&canceller);
    assert_eq!(cancellable.cube_octet(3).unwrap(), 27);
    let cancelled = std::thread::scope(|scope| {
        let call = scope.spawn(|| cancellable.wait_for_level(1).unwrap_err());
        while server.probe.started().unwrap() == 0 {
            assert!(!call.is_finished(), "the call ended before it reached the servant");
            std::thread::yield_now();
        }
        canceller.cancel();
        call.join().unwrap()
    });
    assert_eq!((cancelled.kind(), cancelled.minor() & 0xfff), (Kind::Transient, 3));
    assert_eq!(cancelled.completed(), Completion::Maybe);
    assert_eq!(cancellable.wait_for_level(1).unwrap_err().kind(), Kind::Transient);
    server.probe.set_level(1).unwrap();
    assert_eq!(probe.cube_octet(3).unwrap(), 27);
}

#[test]
fn code_sets_are_negotiated_after_an_explicit_binding() {
    let server = serve(Dispatch::Reactive);
    let (_orb, probe) = client(&server.ior);
    probe.as_object().validate_connection().unwrap();
    assert_eq!(probe.length_of("grün").unwrap(), 4);
}

#[test]
fn oneways_of_a_client_that_closes_are_run() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let (orb, probe) = client(&server.ior);
        for _ in 0..50 {
            probe.note(1).unwrap();
        }
        drop(orb);
        while server.probe.noted().unwrap() != 50 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn listeners_are_closed_after_shutdown() {
    for dispatch in EVERY_DISPATCH {
        let server = serve_at("127.0.0.4", dispatch);
        let corelane::Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!() };
        let (_orb, probe) = client(&server.ior);
        probe.cube_octet(1).unwrap();
        server.orb.shutdown(true).unwrap();
        assert!(std::net::TcpStream::connect(("127.0.0.4", port)).is_err(), "{dispatch:?}");
    }
}

#[test]
fn peer_that_does_not_read_does_not_delay_shutdown() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let (_orb, probe) = client(&server.ior);
        probe.cube_octet(1).unwrap();
        let corelane::Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!() };
        server.orb.bind_corbaloc_key("Mirror", server.probe.as_object()).unwrap();
        let asking = std::thread::spawn(move || {
            let orb = Orb::new().unwrap();
            let object = orb.string_to_object(&format!("corbaloc::1.2@127.0.0.1:{port}/Mirror")).unwrap().unwrap();
            let probe = ProbeRef::from_object(object).with_timeout(Duration::from_millis(1));
            let _ = probe.mirror(&vec![1; 8 << 20]);
            orb
        });
        let orb = asking.join().unwrap();
        drop(server);
        drop(orb);
    }
}

#[test]
fn drop_of_an_orb_waits_for_servants_no_longer_than_for_peers() {
    for dispatch in EVERY_DISPATCH {
        let server = serve_with(
            Orb::builder()
                .pool(PoolConfig::default().dispatch(dispatch))
                .drain_timeout(Duration::from_millis(50))
                .listen("tcp:127.0.0.1:0"),
        );
        let (_orb, probe) = client(&server.ior);
        let stuck = probe.with_timeout(Duration::from_secs(2));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| stuck.slow(20_000));
            while server.probe.started().unwrap() == 0 {
                assert!(!call.is_finished(), "{dispatch:?}: the call ended before it reached the servant");
                std::thread::yield_now();
            }
            let start = Instant::now();
            drop(server);
            assert!(start.elapsed() < Duration::from_secs(15), "{dispatch:?}");
            assert!(call.join().unwrap().is_err(), "{dispatch:?}");
        });
    }
}
